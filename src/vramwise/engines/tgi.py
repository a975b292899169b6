"""text-generation-inference: a warm-up prefill, then blocks of KV cache in what it leaves of a share of the card."""

from __future__ import annotations

from vramwise.engines.engine import CommandLine, Engine

RECORD = Engine(
    name="tgi",
    title="text-generation-inference",
    serving="tgi",
    newest="3.3.7",
    memory_share="gpu_memory_utilization",
    takes_any_adapter_rank=True,  # 3.3.7 adapters/lora.py: an adapter's own tensors
    cache_dtypes=("auto", "fp8_e4m3", "fp8_e5m2"),
    words={
        "mem_fraction_static": "gpu_memory_utilization",
        "chunked_prefill_size": "max_num_batched_tokens",
        "n_ctx": "max_model_len",
        "n_parallel": "max_num_seqs",
        "cache_type_k": "kv_cache_dtype",
    },
    command_line=CommandLine(
        programs=("text-generation-launcher",),
        example="text-generation-launcher",
        modules=("text_generation_server.cli",),
        # and Google's images of it: huggingface-text-generation-inference-cu124.2-3.ubuntu2204.py311 is of 2.3
        image=r"huggingface[/-]text-generation-inference(?:(?::v?|-cu[0-9]+\.)([0-9]+(?:[.-][0-9]+)*))?",
        server=("text-generation-launcher",),
        model_flag="--model-id",
    ),
)
