"""`python -m sglang.launch_server --model-path MODEL …`, by the table that the reader of that command has.

Spellings: SGLang 0.5.23 server_args.py; older ones where the scenario names a version that has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from vramwise.interop.export.draft import Asked, Draft
from vramwise.interop.export.flag_words import LONG_DTYPES, flag_words, listed, stages
from vramwise.interop.launch.sglang import CAPTURED, MEANINGS
from vramwise.releases import version_of

_QUANTIZATIONS = {
    "awq": "awq", "awq-marlin": "awq_marlin", "gptq": "gptq", "gptq-marlin": "gptq_marlin", "fp8": "fp8",
    "mxfp4": "mxfp4", "bitsandbytes-nf4": "bitsandbytes", "gguf": "gguf",
}  # fmt: skip


_SPLIT = (0, 5, 14)
"""The first release whose graphs for prefill and decode have sizes of their own; the plain flag is refused since."""


def write(asked: Asked) -> Draft:
    """The command of a scenario whose engine is SGLang."""
    stated = asked.stated()
    said = dict(stated)
    for key in ("dtype", "mamba_ssm_cache_dtype"):
        if key in said:
            said[key] = LONG_DTYPES.get(str(said[key]), said[key])
    words = ["python", "-m", "sglang.launch_server", "--model-path", asked.model]
    words += [_spelling(word, asked) for word in flag_words("sglang", MEANINGS, said)]
    if stated.get("quantization") in _QUANTIZATIONS:
        words += ["--quantization", _QUANTIZATIONS[str(stated["quantization"])]]
    if stated.get("data_parallel_size", 1) != 1:
        words += ["--dp-size", str(stated["data_parallel_size"])]
    if stated.get("expert_parallel"):
        words += ["--ep-size", str(asked.settings.get("tensor_parallel_size", 1))]
    if "max_loras" in stated or "max_lora_rank" in stated:
        words.append("--enable-lora")
        for key, flag in (("max_loras", "--max-loras-per-batch"), ("max_lora_rank", "--max-lora-rank")):
            if key in stated:
                words += [flag, str(stated[key])]
        targets = stated.get("lora_targets")
        if isinstance(targets, list | tuple):
            words += ["--lora-target-modules", *map(str, targets)]
    drafts = stated.get("speculative")
    if isinstance(drafts, Mapping):
        flags = {"method": "--speculative-algorithm", "model": "--speculative-draft-model-path",
                 "num_tokens": "--speculative-num-draft-tokens"}  # fmt: skip
        for key, flag in flags.items():
            if key in drafts:
                words += [flag, str(drafts[key]).upper() if key == "method" else str(drafts[key])]
    if asked.hf_overrides:
        words += ["--json-model-override-args", json.dumps(asked.hf_overrides)]
    words += listed(CAPTURED[0], stated.get("cudagraph_capture_sizes"))
    environment = stages("SGLANG_PP_LAYER_PARTITION", stated.get("pipeline_layer_partition"))
    return Draft(tuple(words), environment=environment)


def _spelling(word: str, asked: Asked) -> str:
    """A flag as the version has it, the newest where none is stated."""
    stated = asked.stated().get("engine_version")
    is_old = stated is not None and version_of(str(stated)) < _SPLIT
    return "--cuda-graph-max-bs-decode" if word == "--cuda-graph-max-bs" and not is_old else word
