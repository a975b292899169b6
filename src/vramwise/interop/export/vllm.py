"""`vllm serve MODEL …`, by the table that the reader of that command has.

Spellings: vLLM 0.33 config/model.py ModelDType, config/cache.py CacheDType (`fp8` is fp8_e4m3),
model_executor/layers/quantization/__init__.py QuantizationMethods.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from vramwise.interop.export.draft import Asked, Draft
from vramwise.interop.export.flag_words import LONG_DTYPES, flag_words, listed, stages
from vramwise.interop.launch.vllm import CAPTURED, MEANINGS

QUANTIZATIONS = {
    "awq": "awq", "awq-marlin": "awq_marlin", "gptq": "gptq", "gptq-marlin": "gptq_marlin", "fp8": "fp8",
    "mxfp4": "mxfp4", "bitsandbytes-nf4": "bitsandbytes", "gguf": "gguf",
}  # fmt: skip
_COUNTS_ITSELF = frozenset({"mtp", "suffix"})  # config/speculative.py: n_predict of the model, the tree's depth
_NEGATED = frozenset({"enable_prefix_caching"})
_SWITCHES = {
    "use_v1": "VLLM_USE_V1", "use_v2_runner": "VLLM_USE_V2_MODEL_RUNNER",
    "flashinfer_sampler": "VLLM_USE_FLASHINFER_SAMPLER",
}  # fmt: skip


def write(asked: Asked) -> Draft:
    """The command of a scenario whose engine is vLLM."""
    stated = asked.stated()
    said = dict(stated)
    for key in ("dtype", "kv_cache_dtype", "mamba_ssm_cache_dtype"):
        if key in said:
            said[key] = LONG_DTYPES.get(str(said[key]), said[key])
    words = ["vllm", "serve", asked.model, *flag_words("vllm", MEANINGS, said, _NEGATED)]
    quantization = stated.get("quantization")
    if quantization in QUANTIZATIONS:
        words += ["--quantization", QUANTIZATIONS[str(quantization)]]
    if "max_loras" in stated or "max_lora_rank" in stated:
        words.append("--enable-lora")
        for key in ("max_loras", "max_lora_rank"):
            if key in stated:
                words += ["--" + key.replace("_", "-"), str(stated[key])]
    drafts = stated.get("speculative")
    if isinstance(drafts, Mapping):
        names = {"num_tokens": "num_speculative_tokens"}
        config = {names.get(key, key): value for key, value in drafts.items() if key in ("method", "model", *names)}
        if config.get("method") not in _COUNTS_ITSELF:
            config.setdefault("num_speculative_tokens", 1)  # vLLM asks for a number; one is what was counted
        words += ["--speculative-config", json.dumps(config)]
    words += ["--hf-overrides", json.dumps(asked.hf_overrides)] if asked.hf_overrides else []
    words += listed(CAPTURED[0], stated.get("cudagraph_capture_sizes"))
    environment = stages("VLLM_PP_LAYER_PARTITION", stated.get("pipeline_layer_partition"))
    environment |= {name: str(int(bool(stated[key]))) for key, name in _SWITCHES.items() if key in stated}
    return Draft(tuple(words), environment=environment)
