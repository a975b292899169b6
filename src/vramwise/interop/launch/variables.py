"""Environment variables that stand for flags: `LLAMA_ARG_CTX_SIZE=8192`, `MODEL_ID=…` of text-generation-inference.

A flag on the command line wins over its variable, as in the engines. Names read in llama.cpp's common/arg.cpp (as
llama-cpp-python 0.3.36 ships it) and in text-generation-inference's launcher/src/main.rs, where every flag but `--env`
has a variable of its own name.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import UsageError, clipped
from vramwise.interop.launch.flags import flags_of
from vramwise.interop.launch.values import switch

LLAMA_CPP_VARIABLES = {
    "MODEL": "--model", "MODEL_URL": "--model-url", "HF_REPO": "--hf-repo", "HF_FILE": "--hf-file",
    "CTX_SIZE": "--ctx-size", "BATCH": "--batch-size", "UBATCH": "--ubatch-size", "N_PARALLEL": "--parallel",
    "FLASH_ATTN": "--flash-attn", "CACHE_TYPE_K": "--cache-type-k", "CACHE_TYPE_V": "--cache-type-v",
    "KV_UNIFIED": "--kv-unified", "KV_OFFLOAD": "--kv-offload", "SWA_FULL": "--swa-full",
    "N_GPU_LAYERS": "--n-gpu-layers", "SPLIT_MODE": "--split-mode", "TENSOR_SPLIT": "--tensor-split",
    "MAIN_GPU": "--main-gpu", "DEVICE": "--device", "OVERRIDE_TENSOR": "--override-tensor", "CPU_MOE": "--cpu-moe",
    "N_CPU_MOE": "--n-cpu-moe", "FIT": "--fit", "MMPROJ": "--mmproj", "MMPROJ_AUTO": "--mmproj-auto",
    "MMPROJ_OFFLOAD": "--mmproj-offload", "SPEC_DRAFT_MODEL": "--model-draft",
    "SPEC_DRAFT_HF_REPO": "--hf-repo-draft", "N_GPU_LAYERS_DRAFT": "--gpu-layers-draft",
}  # fmt: skip
_PREFIX = "LLAMA_ARG_"
_NEGATIVE = frozenset({"KV_UNIFIED", "KV_OFFLOAD", "MMPROJ_AUTO", "MMPROJ_OFFLOAD"})
"""Those that `LLAMA_ARG_NO_…`, whatever its value, or a value that says no turns off."""


def words_of(engine: str, environment: Mapping[str, str]) -> list[str]:
    """The words that the variables stand for. Raises UsageError for a switch that is neither on nor off."""
    read = {"llama.cpp": _llama_cpp, "tgi": _tgi}.get(engine)
    return [word for name, value in environment.items() for word in read(name, value)] if read else []


def _llama_cpp(name: str, value: str) -> list[str]:
    key = name.removeprefix(_PREFIX)
    if key == name:
        return []
    positive = key.removeprefix("NO_")
    if key != positive and positive in _NEGATIVE:
        return [_off(LLAMA_CPP_VARIABLES[positive])]
    flag = LLAMA_CPP_VARIABLES.get(key)
    if flag is None:
        return []
    if flags_of("llama.cpp")[flag] == "0":
        return _switched(name, flag, value, key in _NEGATIVE)
    return [f"{flag}={value}"]


def _tgi(name: str, value: str) -> list[str]:
    flag = "--" + name.lower().replace("_", "-")
    takes = flags_of("tgi").get(flag)
    if takes is None or flag == "--env" or name != name.upper():
        return []
    return _switched(name, flag, value, False) if takes == "0" else [f"{flag}={value}"]


def _switched(name: str, flag: str, value: str, can_be_off: bool) -> list[str]:
    try:
        on = switch(value)
    except UsageError as problem:
        raise UsageError(f"{clipped(name)}: {problem}") from None
    if on:
        return [flag]
    return [_off(flag)] if can_be_off else []


def _off(flag: str) -> str:
    return flag.replace("--", "--no-", 1)
