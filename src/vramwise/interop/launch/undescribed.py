"""Engines and scripts that people start and that are not described: one line each, with the nearest that is.

LMDeploy 0.14.0 messages.py TurbomindEngineConfig: `cache_max_entry_count` (0.8) is the share of the memory that weights
leave free, as TensorRT-LLM's; its workspaces are in a library without source. quant_policy 4 and 8 are integers, 16 and
17 fp8 (cli/utils.py).

NVIDIA NIM (docs.nvidia.com/nim/large-language-models 1.12 and 2.0 configuration.html): a profile of the container, by
card, says engine, precision and how many GPUs; `NIM_MODEL_NAME` or `NIM_MODEL_PATH` names another model than the image.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from os.path import isfile

from vramwise.errors import UsageError, clipped

_LMDEPLOY = {"--tp": "--tensor-parallel-size", "--session-len": "--max-model-len", "--max-batch-size": "--max-num-seqs",
             "--cache-max-entry-count": "--gpu-memory-utilization"}  # fmt: skip
_SHARE = "0.8"
_CACHES = {"8": "int8", "int8": "int8", "16": "fp8_e4m3", "fp8": "fp8_e4m3", "17": "fp8_e4m3", "fp8_e5m2": "fp8_e4m3"}
_NIM = re.compile(r"(?:^|/)nvcr\.io/nim/([\w.-]+/[\w.-]+?)(?::[\w.-]+)?$")
_NIM_FLAGS = {"NIM_MAX_MODEL_LEN": "--max-model-len", "NIM_TENSOR_PARALLEL_SIZE": "--tensor-parallel-size",
              "NIM_PIPELINE_PARALLEL_SIZE": "--pipeline-parallel-size", "NIM_MAX_NUM_SEQS": "--max-num-seqs",
              "NIM_KVCACHE_PERCENT": "--gpu-memory-utilization"}  # fmt: skip
_SERVES = frozenset({"serve", "chat"})
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?")


def nearest_to(words: Sequence[str]) -> str | None:
    """What is said of a command line of LMDeploy, or of a container of NIM; None for any other."""
    for place, word in enumerate(words):
        program = re.split(r"[\\/]", word)[-1]
        if program == "lmdeploy" and words[place + 1 : place + 2] and words[place + 1] in _SERVES:
            return _of_lmdeploy(words[place + 2 :])
        image = _NIM.search(word)
        if image is not None:
            return _of_nim(image[1], words)
    return None


def _of_nim(image: str, words: Sequence[str]) -> str:
    variables = {name: value for name, sign, value in (word.partition("=") for word in words) if sign}
    named = variables.get("NIM_MODEL_NAME") or variables.get("NIM_MODEL_PATH") or ""
    model = named.partition("://")[2] or named or image.rpartition("/")[2]
    flags = [word for name, flag in _NIM_FLAGS.items() if _NUMBER.fullmatch(variables.get(name, ""))
             for word in (flag, variables[name])]  # fmt: skip
    nearest = " ".join(["vramwise estimate", clipped(model), "--task serve --engine vllm", *flags])
    return (
        "NVIDIA NIM's containers are not described: a profile that they choose by the card says the engine, the "
        f"precision and how many GPUs (list-model-profiles shows them); nearest is {nearest}"
    )


def _of_lmdeploy(words: Sequence[str]) -> str:
    loose = [word for word, before in zip(words, ("", *words), strict=False)
             if not word.startswith("-") and not (before.startswith("-") and "=" not in before)]  # fmt: skip
    model = next((word for word in loose if word not in ("api_server", "gradio", "turbomind", "torch")), "MODEL")
    given = _given(words)
    flags = {_LMDEPLOY[flag]: value for flag, value in given.items() if flag in _LMDEPLOY and _NUMBER.fullmatch(value)}
    flags.setdefault("--gpu-memory-utilization", _SHARE)
    cache = _CACHES.get(given.get("--quant-policy", "").lower())
    asked = [word for pair in flags.items() for word in pair] + (["--kv-cache-dtype", cache] if cache else [])
    nearest = f"vramwise estimate {clipped(model)} --task serve --engine tensorrt-llm {' '.join(asked)}"
    return (
        "LMDeploy's engines are not described: TurboMind gives its cache cache_max_entry_count (0.8) of what weights "
        f"leave free, as TensorRT-LLM does, and has buffers of its own; nearest is {nearest}"
    )


def _given(words: Sequence[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for word, after in zip(words, (*words[1:], ""), strict=False):
        if word.startswith("--"):
            name, sign, value = word.partition("=")
            found[name.replace("_", "-")] = value if sign else after
    return found


def refuse_a_script(words: Sequence[str]) -> None:
    """Raises UsageError for a script that is here and whose code, not its command line, says what it trains."""
    script = next((word for word in words if word.endswith(".py")), None)
    if script is not None and isfile(script):
        raise UsageError(f"{clipped(script, 80)} says in its code what it runs: give it as a FILE, without --")
