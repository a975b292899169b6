"""Settings of an engine that were asked for and changed nothing, each with its cause in the model or the machine.

Only causes that are known are looked for: of what else changed nothing, the sizes of a scenario may be the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vramwise.engines import engine_named
from vramwise.models import Model
from vramwise.models.type_facts import facts, has_fact
from vramwise.scenario import Scenario
from vramwise.scenario.inference import ServeSettings
from vramwise.serving.common.gguf.quantizer import TYPES_BY_IMATRIX
from vramwise.serving.common.storage import storage_of

Cause = Callable[[Scenario, Model], str]
"""Why a setting changed nothing; empty where it may have changed something."""


def unchanged(scenario: Scenario, model: Model) -> tuple[str, ...]:
    """One sentence a setting; of those that the engine lacks or leaves out, another says so already."""
    settings, record = scenario.serve, engine_named(scenario.serve.engine)
    keys = [key for key in _CAUSES if settings.changes(key) and key not in record.lacks and key not in record.uncounted]
    found = ((key, _CAUSES[key](scenario, model)) for key in keys)
    return tuple(f"{key} changed nothing here: {why}" for key, why in found if why)


def _no_experts(scenario: Scenario, model: Model) -> str:
    return "" if model.parts.get("experts") else "the model has no experts"


def _no_windows(scenario: Scenario, model: Model) -> str:
    every_token = all(cache.kind in ("full", "latent", "cross", "none") for cache in model.caches)
    return "every layer's cache keeps all tokens" if every_token else ""


def _no_states(scenario: Scenario, model: Model) -> str:
    recurrent = any(cache.kind == "recurrent" for cache in model.caches)
    return "" if recurrent else "no layer of the model keeps a recurrent state"


def _text_alone(scenario: Scenario, model: Model) -> str:
    return "the model reads text alone" if {block.modality for block in model.blocks} == {"text"} else ""


def _not_quantized(scenario: Scenario, model: Model) -> str:
    settings: ServeSettings = scenario.serve
    storage = storage_of(model, settings.dtype, settings.quantization, settings.quantization_group_size)
    return "the weights are not quantized" if settings.quantization is None and storage.quantization is None else ""


def _prefixes_in_the_pool(scenario: Scenario, model: Model) -> str:
    """Prefixes are blocks of the pool; states of them, and the tails of compressed keys, are kept beside it."""
    fact = scenario.serve.engine, "compressed_keys"
    compressed = fact in facts() and has_fact(*fact, model.config.model_type)
    own = compressed or any(cache.kind == "recurrent" for cache in model.caches)
    return "" if own else "prefixes stay in the blocks of the KV cache, which has its room either way"


def _same_types(scenario: Scenario, model: Model) -> str:
    asked = scenario.serve.gguf_quant
    return "" if asked in TYPES_BY_IMATRIX else "the types of the file's tensors are the same with and without one"


def _one_gpu(scenario: Scenario, model: Model) -> str:
    return "" if scenario.gpus or scenario.num_gpus > 1 else "there is one GPU at most"


_CAUSES: Mapping[str, Cause] = {
    "expert_parallel": _no_experts,
    "n_cpu_moe": _no_experts,
    "cpu_moe": _no_experts,
    "swa_full": _no_windows,
    "swa_full_tokens_ratio": _no_windows,
    "disable_hybrid_kv_cache_manager": _no_windows,
    "mamba_ssm_cache_dtype": _no_states,
    "limit_mm_per_prompt": _text_alone,
    "language_model_only": _text_alone,
    "skip_mm_profiling": _text_alone,
    "quantization_group_size": _not_quantized,
    "enable_prefix_caching": _prefixes_in_the_pool,
    "imatrix": _same_types,
    "split_mode": _one_gpu,
    "main_gpu": _one_gpu,
    "tensor_split": _one_gpu,
}
