"""What vLLM refuses of a speculative configuration, by version.

Read in the wheels 0.8.5, 0.11.2, 0.15.1, 0.20.2 and 0.33.0: config/speculative.py (config.py in 0.8.5) `__post_init__`
and `hf_config_override`, which makes an MTP draft of the target's own configuration where its type is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.errors import ScenarioError
from vramwise.models import Model
from vramwise.models.lengths import text_config
from vramwise.models.type_facts import has_fact
from vramwise.serving.common.versions import Version, at_version

_LAYERS_OF_MTP = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
_DRAFT_MODELS_REFUSED = ((0, 11), (0, 11, 99))  # "not supported yet": 0.11.2 with V1 alone; 0.15.1 has them
_WHERE = "config/speculative.py"


def check_drafts(speculative: Mapping[str, Any] | None, model: Model, version: Version) -> None:
    """Raises ScenarioError for a way of drafting that the model or the version does not have."""
    if not speculative:
        return
    method, draft = str(speculative.get("method") or "").lower(), speculative.get("model")
    if "mtp" in method and not draft:
        _check_mtp(speculative.get("num_tokens"), model, version)
    first, last = _DRAFT_MODELS_REFUSED
    if draft and method in ("", "draft_model") and first <= version <= last and "ngram" not in str(draft):
        _refuse("a draft model of its own is not supported", version, "take method eagle, mtp or ngram, or vLLM 0.15")


def _check_mtp(tokens: int | None, model: Model, version: Version) -> None:
    config, text = model.config, text_config(model)
    types = (config.model_type, text.model_type)
    if not any(has_fact("vllm", "predicts_further_tokens", one) for one in types):
        _refuse(f"{config.model_type} has no layers that predict further tokens", version, "take method eagle or ngram")
    layers = next((n for key in _LAYERS_OF_MTP for n in (config.get(key), text.get(key)) if type(n) is int), None)
    if layers == 0:
        _refuse("the config states no layers that predict further tokens", version, "take method eagle or ngram")
    if layers is not None and tokens is not None and tokens > layers and tokens % layers:
        nearest = tokens // layers * layers
        _refuse(f"{tokens} drafted tokens are no multiple of the {layers} layers that predict them", version,
                f"set num_tokens to {nearest}")  # fmt: skip


def _refuse(what: str, version: Version, way_out: str) -> None:
    raise ScenarioError("serve.speculative", f"{what}, {at_version('vLLM', version)} refuses it ({_WHERE}): {way_out}")
