"""Which attention transformers' classes have, by their sources, and what runs where one was asked for or none was.

transformers refuses a kernel that the class does not have and takes eager attention where none was asked for
(transformers 5.23 modeling_utils.py `_flash_attn_can_dispatch`, `_sdpa_can_dispatch`,
`_check_and_adjust_attn_implementation`; before 4.53 `_autoset_attn_implementation`). Attention with sinks has flash
kernels (gpt-oss: `_compatible_flash_implementations`, kernels-community/vllm-flash-attn3), but SDPA takes none.

LLaMA has no row without flash attention: before 4.34 frameworks patched it in (axolotl monkeypatch/
llama_attn_hijack_flash.py, FastChat train/llama_flash_attn_monkey_patch.py), which is what asking for it meant.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import ScenarioError
from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import described, library_version, stated
from vramwise.models.model import Model
from vramwise.models.type_facts import has_fact, types_with
from vramwise.scenario import TrainSettings


def types_without(kernel: str, version: tuple[int, ...]) -> frozenset[str]:
    """Types whose class lacks sdpa, flash or flex in a version of transformers (`_supports_sdpa` and its like)."""
    return types_with("transformers", f"without_{kernel}", version)


def version_of_classes(train: TrainSettings) -> tuple[int, ...]:
    """The transformers version whose classes run; a script of one's own that names torch alone may run any others."""
    names_another = framework_of(train).trainer or stated(train, "transformers") is not None
    return library_version(train) if names_another else described("transformers")


def attention_of_classes(given: TrainSettings, train: TrainSettings, model: Model) -> str:
    """The attention of a transformers class; raises `ScenarioError` where it does not have what was asked for.

    `auto` where classes within the model choose otherwise than one another: asked for, SDPA would be refused.

    `given`: the settings as stated; `train`: with what the framework decides.
    """
    kinds, version = kinds_within(model.config.values), version_of_classes(train)
    kind = kinds[0]
    if train.attention in ("flash", "flex"):
        _refuse_without(train.attention, kinds, version)
    has_alibi = has_fact("transformers", "flash_without_alibi", kind, version) and model.config.flag("alibi")
    if train.attention == "flash" and has_alibi:
        problem = f"transformers has no flash attention for {kind} with ALiBi: it runs sdpa or eager"
        raise ScenarioError("train.attention", problem)
    if train.attention != "sdpa":
        return train.attention
    if "attention" in given.explicit:
        _refuse_without("sdpa", kinds, version)
    elif has_fact("transformers", "eager_unasked", kind, version):
        return "eager"
    lacking = types_without("sdpa", version)
    chooses = not has_fact("transformers", "parts_choose_attention", kind, version)
    text = kinds_within({"text_config": model.config.values.get("text_config")})[-1]
    gained = text in lacking - types_without("sdpa", described("transformers"))  # its blocks run as the whole does
    if gained or (chooses and kind in lacking):
        return "eager"
    return "sdpa" if lacking.isdisjoint(kinds) else "auto"


def kinds_within(values: Mapping[str, object]) -> tuple[str, ...]:
    """The type of a model, then those of the models inside it, each of its own class (PaliGemma 2 has a Gemma 2).

    What is asked for is handed to the configs inside (transformers 5.23 configuration_utils.py, setter of
    `_attn_implementation`). A tower alone is of its family's class: `siglip2_vision_model` of `siglip2`.
    """
    inside = [table for table in values.values() if isinstance(table, Mapping) and table.get("model_type")]
    kind = str(values.get("model_type") or "").removesuffix("_vision_model")
    return (kind, *(within for table in inside for within in kinds_within(table)))


_TITLES: Mapping[str, str] = {"sdpa": "SDPA", "flash": "flash attention", "flex": "flex attention"}


def _refuse_without(kernel: str, kinds: tuple[str, ...], version: tuple[int, ...]) -> None:
    """Raise where a class among these does not have the attention that was asked for."""
    without = types_without(kernel, version)
    lacking = next((kind for kind in kinds if kind in without), None)
    if lacking is None:
        return
    whose = lacking if lacking == kinds[0] else f"{lacking}, a part of {kinds[0]}"
    others = [other for other in ("sdpa", "flash") if other != kernel]
    names = [other for other in others if types_without(other, version).isdisjoint(kinds)]
    what = f"it runs {', '.join(names)} or eager" if names else "it runs eager"
    raise ScenarioError("train.attention", f"transformers has no {_TITLES[kernel]} for {whose}: {what}")
