"""TensorRT-LLM: a fraction of what is free at the fullest moment before goes to the KV cache."""

from __future__ import annotations

from vramwise.engines.engine import CommandLine, Engine, Shortage

RECORD = Engine(
    name="tensorrt-llm",
    title="TensorRT-LLM",
    serving="tensorrt_llm",
    memory_share="gpu_memory_utilization",
    takes_any_adapter_rank=True,  # peftCacheManager.cpp: pages of max_lora_rank
    cache_dtypes=("auto", "bf16", "fp16", "fp8_e4m3", "int8", "nvfp4"),
    words={
        "mem_fraction_static": "gpu_memory_utilization",
        "chunked_prefill_size": "max_num_batched_tokens",
        "n_ctx": "max_model_len",
        "n_parallel": "max_num_seqs",
        "cache_type_k": "kv_cache_dtype",
    },
    rollout_names=("trtllm",),
    command_line=CommandLine(programs=("trtllm-serve",), example="trtllm-serve"),
    shortages=(
        Shortage(
            sign=r"The following component could not be created: ([A-Za-z][A-Za-z ]{1,40}?)(?= Total GPU|$)",
            cause="no room was left to make this part: \\1",
            changes=(
                ("a lower --max_batch_size, --max_num_tokens or --max_seq_len", "fewer requests at once"),
                (
                    "a lower --kv_cache_free_gpu_memory_fraction, or more cards (--tp_size)",
                    "a smaller KV cache, or more cards",
                ),
            ),
        ),
        Shortage(
            cause="TensorRT-LLM asked CUDA for weights, workspace or KV cache, and the card is full",
            changes=(
                ("a lower --max_batch_size, --max_num_tokens or --max_seq_len", "fewer requests at once"),
                ("a lower --kv_cache_free_gpu_memory_fraction", "a smaller KV cache"),
            ),
        ),
    ),
)
