"""`trtllm-serve MODEL …`."""

from __future__ import annotations

from vramwise.interop.launch.command import Launch, Start, notes_of, one_model, settings_of, understood_of, words_for
from vramwise.interop.launch.values import Meaning, fraction, whole, word

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
UNCOUNTED = {
    "--extra-llm-api-options": "its file is not read",
    "--config": "its file is not read",
    "--max-beam-width": "one beam is taken",
}


def read(start: Start) -> Launch:
    """The scenario of a TensorRT-LLM command line."""
    words = words_for("tensorrt-llm", start)
    settings: dict[str, object] = {"engine": "tensorrt-llm", **settings_of(words, MEANINGS)}
    loose = list(words.loose)
    model = one_model("TensorRT-LLM", loose.pop(0) if loose else None, "trtllm-serve MODEL")
    notes = notes_of("TensorRT-LLM", words, frozenset(MEANINGS), UNCOUNTED, loose)
    scenario: dict[str, object] = {"model": model, "task": "serve", "serve": settings}
    return Launch("tensorrt-llm", scenario, notes, understood_of(words, frozenset(MEANINGS)))
