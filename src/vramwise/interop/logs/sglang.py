"""SGLang's start-up log.

Line formats read in the released wheels 0.5.4 and 0.5.23 (model_executor/model_runner.py and
model_runner_components, mem_cache/memory_pool.py, managers/scheduler.py, entrypoints/engine.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from vramwise.interop.logs.reading import Collector, Reading
from vramwise.interop.logs.settings import copy_formats, copy_share, copy_size, copy_whole, dtype_of, pairs
from vramwise.units import GIB

# digits of what an engine can print; a longer number is no match, and no search is as long as the line
_N = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)"
_BEGIN = re.compile(rf"Load weight begin\. avail mem={_N} GB")
_END = re.compile(rf"Load weight end\..{{0,400}}?mem usage={_N} GB")
_KV_PAIR = re.compile(rf"#tokens: ([0-9]{{1,15}}), K size: {_N} GB, V size: {_N} GB")
_KV_ONE = re.compile(rf"#tokens: ([0-9]{{1,15}}), KV size: {_N} GB")
_DISTRIBUTED = re.compile(rf"Init torch distributed ends\..{{0,80}}?mem usage={_N} GB")
_GRAPH = re.compile(rf"(?i:capture [\w ]{{0,60}}graph end)\..{{0,120}}?mem usage={_N} GB")
_TOTAL_TOKENS = re.compile(r"max_total_num_tokens=([0-9]{1,15})\b")
_CONTEXT = re.compile(r"context_len=([0-9]{1,15})\b")
_CHUNK = re.compile(r"chunked_prefill_size=([0-9]{1,15})\b")
_VERSION = re.compile(r"sglang[ =v(]{1,3}([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,9})", re.I)
_LABELS = {
    "weights": "weights (Load weight end)", "kv_cache_bytes": "KV cache size",
    "kv_cache_tokens": "tokens of the KV cache",
    "cuda_graph": "CUDA graph memory (the log ends before capture, or it is disabled)",
}  # fmt: skip
_SIZES = {
    "context_length": "max_model_len", "tp_size": "tensor_parallel_size", "pp_size": "pipeline_parallel_size",
    "chunked_prefill_size": "chunked_prefill_size", "cuda_graph_max_bs": "cuda_graph_max_bs",
    "max_running_requests": "max_num_seqs", "page_size": "block_size", "max_total_tokens": "max_total_tokens",
}  # fmt: skip


def read(lines: Sequence[str]) -> Reading:
    """Settings, weights, pool and graphs of an SGLang log; where ranks differ, the fullest one."""
    reading = Reading("sglang")
    found = Collector()
    for line in lines:
        if "server_args=" in line:
            _apply(reading, pairs(line.partition("server_args=")[2]))
        if (version := _VERSION.search(line)) and reading.version is None:
            reading.version = version.group(1)
        _numbers(reading, found, line)
    for quantity in ("weights", "kv_cache_bytes", "kv_cache_tokens", "cuda_graph"):
        worst = found.worst(quantity, largest=quantity in ("weights", "cuda_graph"))
        if worst is not None:
            reading.printed[quantity] = worst
    reading.communicators = found.worst("communicators")
    if reading.version:
        reading.settings["engine_version"] = reading.version
    _card(reading, found)
    reading.missing = [label for quantity, label in _LABELS.items() if quantity not in reading.printed]
    return reading


def _apply(reading: Reading, given: dict[str, object]) -> None:
    if isinstance(path := given.get("model_path"), str):
        reading.model = reading.model or path
    settings = reading.settings
    copy_whole(given, settings, _SIZES)
    copy_share(given, settings, "mem_fraction_static")
    copy_share(given, settings, "swa_full_tokens_ratio")
    copy_size(given, settings, "cpu_offload_gb")
    if (states := dtype_of(given.get("mamba_ssm_dtype"))) is not None:
        settings["mamba_ssm_cache_dtype"] = states
    copy_formats(given, settings)
    if given.get("disable_cuda_graph") is True:
        settings["enforce_eager"] = True
    copies = given.get("dp_size")
    if type(copies) is int and copies > 1 and given.get("enable_dp_attention") is not True:
        settings["data_parallel_size"] = copies
    if type(ranks := given.get("ep_size")) is int and ranks > 1:
        settings["expert_parallel"] = True
    if isinstance(algorithm := given.get("speculative_algorithm"), str):
        settings["speculative"] = {"method": algorithm.lower()}


def _numbers(reading: Reading, found: Collector, line: str) -> None:
    if match := _BEGIN.search(line):
        found.add("free", match.group(1), GIB, line)
    elif match := _END.search(line):
        found.add("weights", match.group(1), GIB, line)
    elif match := _KV_PAIR.search(line):
        found.add("kv_cache_tokens", match.group(1), 1, line)
        both = f"{float(match.group(2)) + float(match.group(3)):.2f}"
        found.add("kv_cache_bytes", both, GIB, line)
    elif match := _KV_ONE.search(line):
        found.add("kv_cache_tokens", match.group(1), 1, line)
        found.add("kv_cache_bytes", match.group(2), GIB, line)
    elif match := _DISTRIBUTED.search(line):
        found.add("communicators", match.group(1), GIB, line)
    elif match := _GRAPH.search(line):
        found.add("cuda_graph", match.group(1), GIB, line)
    elif match := _TOTAL_TOKENS.search(line):
        found.add("kv_cache_tokens", match.group(1), 1, line)
        if context := _CONTEXT.search(line):
            reading.settings.setdefault("max_model_len", int(context.group(1)))
        if chunk := _CHUNK.search(line):
            reading.settings.setdefault("chunked_prefill_size", int(chunk.group(1)))


def _card(reading: Reading, found: Collector) -> None:
    """The card's total from what is free before loading: the log prints no other."""
    from vramwise.hardware import context_bytes

    free = found.worst("free", largest=False)
    if free is not None:
        reading.total_bytes = round(free.value) + int(context_bytes(None).expected)
        reading.note("the card's total is what was free before loading and a usual CUDA context; --gpu overrides it")
