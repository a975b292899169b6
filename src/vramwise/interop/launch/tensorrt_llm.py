"""`trtllm-serve MODEL …`, and the YAML file whose settings win over its flags.

Read in TensorRT-LLM 1.2 commands/serve.py and llmapi/llm_args.py (update_llm_args_with_extra_dict: the file's arguments
of LLM replace the flags').
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import SourceError, UsageError, clipped
from vramwise.interop.launch.command import Launch, Start, notes_of, one_model, settings_of, understood_of, words_for
from vramwise.interop.launch.values import Meaning, fraction, is_table, whole, word
from vramwise.scenario.files import read_table_file

_OF_CACHE = {"dtype": "kv_cache_dtype", "free_gpu_memory_fraction": "kv_cache_free_gpu_memory_fraction"}
MEANINGS = {
    "--tp-size": Meaning("tensor_parallel_size", whole),
    "--tensor-parallel-size": Meaning("tensor_parallel_size", whole),
    "--pp-size": Meaning("pipeline_parallel_size", whole),
    "--pipeline-parallel-size": Meaning("pipeline_parallel_size", whole),
    "--max-batch-size": Meaning("max_num_seqs", whole),
    "--max-num-tokens": Meaning("max_num_batched_tokens", whole),
    "--max-seq-len": Meaning("max_model_len", whole),
    "--kv-cache-free-gpu-memory-fraction": Meaning("gpu_memory_utilization", fraction),
    "--free-gpu-memory-fraction": Meaning("gpu_memory_utilization", fraction),
    "--kv-cache-dtype": Meaning("kv_cache_dtype", word),
    "--ep-size": Meaning("expert_parallel", lambda text: (whole(text) or 1) > 1),
    "--moe-expert-parallel-size": Meaning("expert_parallel", lambda text: (whole(text) or 1) > 1),
}
FILES = ("--extra-llm-api-options", "--config")
UNCOUNTED = {"--max-beam-width": "one beam is taken"}
_SAME = ("dtype", "backend", "trust_remote_code", "print_iter_log", "disable_overlap_scheduler", "enable_attention_dp",
         "cuda_graph_config", "moe_config", "enable_autotuner", "stream_interval")  # fmt: skip
"""Keys of the file that change nothing that is counted here; others are named."""


def read(start: Start) -> Launch:
    """The scenario of a TensorRT-LLM command line."""
    words = words_for("tensorrt-llm", start)
    settings: dict[str, object] = {"engine": "tensorrt-llm", **settings_of(words, MEANINGS)}
    told: list[str] = []
    for file in (file for flag in FILES for file in words.given.get(flag, [])):
        found, notes_of_file = of_file(file)
        settings |= found
        told += notes_of_file
    loose = list(words.loose)
    model = one_model("TensorRT-LLM", loose.pop(0) if loose else None, "trtllm-serve MODEL")
    notes = (*told, *notes_of("TensorRT-LLM", words, frozenset((*MEANINGS, *FILES)), UNCOUNTED, loose))
    scenario: dict[str, object] = {"model": model, "task": "serve", "serve": settings}
    return Launch("tensorrt-llm", scenario, notes, understood_of(words, frozenset((*MEANINGS, *FILES))))


def of_file(path: str) -> tuple[dict[str, object], list[str]]:
    """The settings of a file of arguments of LLM, and what it says else. Raises UsageError that names the key."""
    try:
        table = read_table_file(path, any_name=True)
    except SourceError:
        return {}, [f"{clipped(path, 80)} cannot be read: what it sets is not counted"]
    cache = table.pop("kv_cache_config", None)
    flat = {**table, **({_OF_CACHE.get(key, key): value for key, value in cache.items()} if is_table(cache) else {})}
    found: dict[str, object] = {}
    read: list[str] = []
    for key, value in flat.items():
        meaning = MEANINGS.get(f"--{key.replace('_', '-')}")
        if meaning is None or value is None or isinstance(value, bool | Mapping | list):
            continue
        try:
            found[meaning.key] = meaning.read(str(value))
        except UsageError as problem:
            raise UsageError(f"{clipped(path, 80)}: {key}: {problem}") from None
        read.append(key)
    others = [clipped(key, 40) for key in flat if key not in read and key not in _SAME]
    notes = [f"read from {clipped(path, 80)}: {', '.join(read)}"] if read else []
    return found, [*notes, *([f"its other settings are not counted: {', '.join(others)}"] if others else [])]
