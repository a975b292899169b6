"""llama.cpp's environment variables: `LLAMA_ARG_CTX_SIZE=8192`.

Names read in llama.cpp's common/arg.cpp, as llama-cpp-python 0.3.36 ships it.
"""

from __future__ import annotations

from vramwise.engines.llama_cpp import RECORD
from vramwise.interop.launch.flags import flags_of
from vramwise.interop.launch.variables import off, switched

VARIABLES = {
    "MODEL": "--model", "MODEL_URL": "--model-url", "HF_REPO": "--hf-repo", "HF_FILE": "--hf-file",
    "CTX_SIZE": "--ctx-size", "BATCH": "--batch-size", "UBATCH": "--ubatch-size", "N_PARALLEL": "--parallel",
    "FLASH_ATTN": "--flash-attn", "CACHE_TYPE_K": "--cache-type-k", "CACHE_TYPE_V": "--cache-type-v",
    "KV_UNIFIED": "--kv-unified", "KV_OFFLOAD": "--kv-offload", "SWA_FULL": "--swa-full",
    "N_GPU_LAYERS": "--n-gpu-layers", "SPLIT_MODE": "--split-mode", "TENSOR_SPLIT": "--tensor-split",
    "MAIN_GPU": "--main-gpu", "DEVICE": "--device", "OVERRIDE_TENSOR": "--override-tensor", "CPU_MOE": "--cpu-moe",
    "N_CPU_MOE": "--n-cpu-moe", "FIT": "--fit", "MMPROJ": "--mmproj", "MMPROJ_AUTO": "--mmproj-auto",
    "MMPROJ_OFFLOAD": "--mmproj-offload", "SPEC_DRAFT_MODEL": "--model-draft",
    "SPEC_DRAFT_HF_REPO": "--hf-repo-draft", "N_GPU_LAYERS_DRAFT": "--gpu-layers-draft",
    "SPEC_DRAFT_CACHE_TYPE_K": "--spec-draft-type-k", "SPEC_DRAFT_CACHE_TYPE_V": "--spec-draft-type-v",
}  # fmt: skip
_PREFIX = "LLAMA_ARG_"
_NEGATIVE = frozenset({"KV_UNIFIED", "KV_OFFLOAD", "MMPROJ_AUTO", "MMPROJ_OFFLOAD"})
"""Those that `LLAMA_ARG_NO_…`, whatever its value, or a value that says no turns off."""


def words_of_variable(name: str, value: str) -> list[str]:
    """The words that a variable stands for. Raises UsageError for a switch that is neither on nor off."""
    key = name.removeprefix(_PREFIX)
    if key == name:
        return []
    positive = key.removeprefix("NO_")
    if key != positive and positive in _NEGATIVE:
        return [off(VARIABLES[positive])]
    flag = VARIABLES.get(key)
    if flag is None:
        return []
    if flags_of(RECORD.name)[flag] == "0":
        return switched(name, flag, value, key in _NEGATIVE)
    return [f"{flag}={value}"]
