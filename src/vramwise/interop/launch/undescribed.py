"""Engines that people start and that are not described: one line each, with the nearest that is.

LMDeploy 0.14.0 messages.py TurbomindEngineConfig: `cache_max_entry_count` (0.8) is the share of the memory that weights
leave free, as TensorRT-LLM's; its workspaces are in a library without source. quant_policy 4 and 8 are integers, 16 and
17 fp8 (cli/utils.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from vramwise.errors import clipped

_LMDEPLOY = {"--tp": "--tensor-parallel-size", "--session-len": "--max-model-len", "--max-batch-size": "--max-num-seqs",
             "--cache-max-entry-count": "--gpu-memory-utilization"}  # fmt: skip
_SHARE = "0.8"
_CACHES = {"8": "int8", "int8": "int8", "16": "fp8_e4m3", "fp8": "fp8_e4m3", "17": "fp8_e4m3", "fp8_e5m2": "fp8_e4m3"}
_SERVES = frozenset({"serve", "chat"})
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?")


def nearest_to(words: Sequence[str]) -> str | None:
    """What is said of a command line of LMDeploy; None for any other."""
    for place, word in enumerate(words):
        program = re.split(r"[\\/]", word)[-1]
        if program == "lmdeploy" and words[place + 1 : place + 2] and words[place + 1] in _SERVES:
            return _of_lmdeploy(words[place + 2 :])
    return None


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
