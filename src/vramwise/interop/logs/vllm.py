"""vLLM's start-up log.

Line formats read in the released wheels 0.8.5, 0.11.2, 0.19.0 and 0.33.0 (v1/worker/gpu_worker.py,
v1/worker/gpu_model_runner.py, v1/core/kv_cache_utils.py, worker/worker.py, v1/engine/core.py, entrypoints).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from vramwise.interop.logs.reading import Collector, Reading
from vramwise.interop.logs.settings import copy_formats, copy_share, copy_size, copy_whole, dtype_of, pairs, table
from vramwise.units import GIB

# digits of what an engine can print; a longer number is no match, and no search is as long as the line
_N = r"(-?[0-9][0-9,]{0,17}(?:\.[0-9]{1,9})?)"
_NUMBERS = {
    "weights": re.compile(rf"(?:Model loading|Loading model weights) took {_N} Gi?B"),
    "kv_cache_bytes": re.compile(rf"Available KV cache memory: {_N} GiB"),
    "cuda_graph": re.compile(rf"Graph capturing finished in [0-9.]+ secs?, took {_N} GiB"),
    "graph_estimate": re.compile(rf"Estimated CUDA graph memory: {_N} GiB"),
}
_V0 = {
    "weights": re.compile(rf"model weights take {_N}GiB"),
    "non_torch": re.compile(rf"non_torch_memory takes {_N}GiB"),
    "activation_peak": re.compile(rf"activation peak memory takes {_N}GiB"),
    "kv_cache_bytes": re.compile(rf"reserved for KV Cache is {_N}GiB"),
}
_ACTUAL = {
    "weights": re.compile(rf"Actual usage is {_N} GiB for weight"),
    "activation_peak": re.compile(rf"{_N} GiB for peak activation"),
    "non_torch": re.compile(rf"{_N} GiB for non-torch memory"),
    "cuda_graph": re.compile(rf"and {_N} GiB for CUDAGraph memory"),
}
_TOKENS = re.compile(rf"GPU KV cache size: {_N} tokens")
_CONCURRENCY = re.compile(rf"Maximum concurrency for {_N} tokens per request: {_N}x")
_BLOCKS = re.compile(r"# (?:GPU|cuda) blocks: ([0-9]{1,15})\b")
_VERSION = re.compile(
    r"LLM engine \(v([0-9][\w.]*+)[\w.+-]*+\)|vLLM API server version ([0-9][\w.]*)|vLLM version:? v?([0-9][\w.]*)"
)
_TOTAL = re.compile(rf"Free memory on device[^(]{{0,40}}\({_N}/{_N} GiB\)")
_TOTAL_V0 = re.compile(rf"total_gpu_memory \({_N}GiB\) x gpu_memory_utilization \({_N}\)")
_DESIRED = re.compile(rf"esired GPU memory utilization (?:is )?\({_N},")
_CHUNKED = re.compile(r"max_num_batched_tokens=([0-9]{1,9})\b")
_CAPTURED = re.compile(r"'max_(?:cudagraph_)?capture_size': ([0-9]{1,9})\b")
_NEEDED = re.compile(rf"max seq len \({_N}\), \(?{_N} GiB KV cache is needed.{{0,120}}?\({_N} GiB\)")
_LONGEST = re.compile(rf"estimated maximum model length is {_N}")
_CAPACITY = re.compile(rf"GPU [0-9]+ has a total capacity of {_N} GiB")
_LABELS = {
    "weights": "model weights", "activation_peak": "activation peak (printed at debug level)",
    "non_torch": "non-torch memory (printed at debug level)", "kv_cache_bytes": "available KV cache memory",
    "kv_cache_tokens": "KV cache size in tokens", "max_concurrency": "maximum concurrency",
    "cuda_graph": "CUDA graph memory (the log ends before capture, or eager mode)",
}  # fmt: skip
MOST_CAPTURED = 512
_POOLING_TASKS = ("embed", "embedding", "classify", "score", "reward")
_SIZES = {
    "max_seq_len": "max_model_len", "max_model_len": "max_model_len", "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size", "data_parallel_size": "data_parallel_size",
    "max_num_seqs": "max_num_seqs", "max_num_batched_tokens": "max_num_batched_tokens", "block_size": "block_size",
    "kv_cache_memory_bytes": "kv_cache_memory_bytes", "decode_context_parallel_size": "decode_context_parallel_size",
}  # fmt: skip


def read(lines: Sequence[str]) -> Reading:
    """Settings and budget lines of a vLLM log; where ranks differ, the fullest one."""
    reading = Reading("vllm")
    found = Collector()
    readers: tuple[Callable[[Reading, Collector, str], None], ...] = (_settings, _numbers, _card, _failures)
    for line in lines:
        for one in readers:
            one(reading, found, line)
    for quantity in ("weights", "activation_peak", "non_torch", "cuda_graph"):
        _keep(reading, found, quantity, largest=True)
    for quantity in ("kv_cache_bytes", "kv_cache_blocks", "kv_cache_tokens", "max_concurrency", "max_seq"):
        _keep(reading, found, quantity, largest=False)
    if reading.version:
        reading.settings["engine_version"] = reading.version
    reading.missing = [label for quantity, label in _LABELS.items() if quantity not in reading.printed]
    return reading


def _keep(reading: Reading, found: Collector, quantity: str, *, largest: bool) -> None:
    worst = found.worst(quantity, largest=largest)
    if worst is None:
        return
    reading.printed[quantity] = worst
    if found.differ(quantity):
        many, which = len(found.values[quantity]), "largest" if largest else "smallest"
        reading.note(f"{quantity} is printed {many} times with different values: the {which} is taken")


def _settings(reading: Reading, found: Collector, line: str) -> None:
    version = _VERSION.search(line)
    if version and reading.version is None:
        reading.version = next(group for group in version.groups() if group).rstrip(".")
    if "Initializing a V0 LLM engine" in line:
        reading.settings["use_v1"] = False
    elif "Initializing a V1 LLM engine" in line:
        reading.settings["use_v1"] = True
    if "with config:" in line:
        _apply(reading, pairs(line.partition("with config:")[2]))
        _captured(reading, line)
    elif "non-default args:" in line:
        _apply(reading, table(line.partition("non-default args:")[2]))
    elif "args: Namespace(" in line:
        _apply(reading, pairs(line.partition("Namespace(")[2]))
    elif "Compiling a graph for " in line:
        reading.settings["first_start"] = True
    elif "Directly load the compiled graph" in line:
        reading.settings.setdefault("first_start", False)
    elif "Using V2 Model Runner" in line:
        reading.settings["use_v2_runner"] = True
    elif "'VLLM_CUTLASS' NvFp4 MoE backend" in line:
        reading.settings["moe_backend"] = "cutlass"
    elif "Using FlashInfer for top-p & top-k sampling" in line:
        reading.settings["flashinfer_sampler"] = True
    elif "Chunked prefill is enabled" in line and (tokens := _CHUNKED.search(line)):
        reading.settings.setdefault("max_num_batched_tokens", int(tokens.group(1)))


def _captured(reading: Reading, line: str) -> None:
    """Graphs are captured up to twice max_num_seqs where that is less than 512 (config/vllm.py)."""
    match = _CAPTURED.search(line)
    largest = int(match.group(1)) if match else 0
    if 1 < largest < MOST_CAPTURED and largest % 2 == 0 and "speculative_config=None" in line:
        reading.settings.setdefault("max_num_seqs", largest // 2)


def _apply(reading: Reading, given: dict[str, object]) -> None:
    settings = reading.settings
    model = given.get("model_tag") or given.get("model")
    if isinstance(model, str) and reading.model is None:
        reading.model = model
    copy_whole(given, settings, _SIZES)
    copy_share(given, settings, "gpu_memory_utilization")
    copy_formats(given, settings)
    copy_size(given, settings, "cpu_offload_gb")
    if (states := dtype_of(given.get("mamba_ssm_cache_dtype"))) is not None:
        settings["mamba_ssm_cache_dtype"] = states
    if isinstance(caching := given.get("enable_prefix_caching"), bool):
        settings["enable_prefix_caching"] = caching
    for switch in ("enforce_eager", "language_model_only", "skip_mm_profiling"):
        if given.get(switch) is True:
            settings[switch] = True
    if given.get("enable_expert_parallel") is True:
        settings["expert_parallel"] = True
    if given.get("enable_lora") is True:
        sizes: dict[str, object] = {"max_loras": 1, "max_lora_rank": 16}
        copy_whole(given, sizes, {key: key for key in sizes})
        settings.update({key: value for key, value in sizes.items() if key not in settings})
    if drafting := _drafting(given.get("speculative_config")):
        settings["speculative"] = drafting
    limits = given.get("limit_mm_per_prompt")
    if isinstance(limits, dict) and all(type(value) is int for value in limits.values()):
        settings["limit_mm_per_prompt"] = limits
    if given.get("runner") == "pooling" or given.get("task") in _POOLING_TASKS:
        settings["pooling"] = True


def _drafting(given: object) -> dict[str, object]:
    """How tokens are drafted, by which model and how many; nothing where that is not said."""
    if not isinstance(given, dict):
        return {}
    found: dict[str, object] = {key: given[key] for key in ("method", "model") if isinstance(given.get(key), str)}
    tokens = given.get("num_speculative_tokens")
    if found and type(tokens) is int and tokens > 0:
        found["num_tokens"] = tokens
    return found


def _numbers(reading: Reading, found: Collector, line: str) -> None:
    if (
        "GiB" not in line
        and "GB" not in line
        and "oncurrency" not in line
        and "blocks" not in line
        and "tokens" not in line
    ):
        return
    for patterns in (_NUMBERS, _V0, _ACTUAL):
        for quantity, pattern in patterns.items():
            match = pattern.search(line)
            if match:
                found.add(quantity, match.group(1), GIB, line)
    if match := _TOKENS.search(line):
        found.add("kv_cache_tokens", match.group(1), 1, line)
    if match := _CONCURRENCY.search(line):
        found.add("max_concurrency", match.group(2), 1, line)
        reading.settings.setdefault("max_model_len", int(match.group(1).replace(",", "")))
    if match := _BLOCKS.search(line):
        found.add("kv_cache_blocks", match.group(1), 1, line)


def _card(reading: Reading, found: Collector, line: str) -> None:
    if match := _TOTAL.search(line):
        reading.total_bytes = round(float(match.group(2)) * GIB)
    elif match := _TOTAL_V0.search(line):
        reading.total_bytes = round(float(match.group(1)) * GIB)
        reading.settings.setdefault("gpu_memory_utilization", float(match.group(2)))
    elif match := _CAPACITY.search(line):
        reading.total_bytes = reading.total_bytes or round(float(match.group(1)) * GIB)
    if match := _DESIRED.search(line):
        reading.settings.setdefault("gpu_memory_utilization", float(match.group(1)))


def _failures(reading: Reading, found: Collector, line: str) -> None:
    if match := _NEEDED.search(line):
        found.add("kv_cache_bytes", match.group(3), GIB, line)
        reading.settings.setdefault("max_model_len", int(match.group(1).replace(",", "")))
        reading.note(
            f"the engine stopped: one request needs {match.group(2)} GiB of KV cache, {match.group(3)} GiB are left"
        )
        if longest := _LONGEST.search(line):
            found.add("max_seq", longest.group(1), 1, line)
    elif "No available memory for the cache blocks" in line:
        reading.note("the engine stopped: no memory was left for the KV cache")
    elif "CUDA out of memory" in line:
        reading.note("the engine ran out of memory")
