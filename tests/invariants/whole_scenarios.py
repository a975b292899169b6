"""Random whole scenarios over every model and GPU of the catalogs: one strategy for each kind of job."""

from __future__ import annotations

from math import prod
from typing import Any

from hypothesis import strategies as st

from vramwise.hardware.gpu import gpus
from vramwise.scenario import names
from vramwise.sources.catalog import catalog


def one(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


MODELS = tuple(sorted(entry.id for entry in catalog()))
WITH_EXPERTS = frozenset(entry.id for entry in catalog() if any("expert" in key for key in entry.hyperparameters))
CARDS = tuple(sorted(gpu.id for gpu in gpus()))
# A few cards that people have come up as often as all the others together.
COMMON_CARDS = ("h100-sxm-80gb", "a100-sxm-80gb", "rtx-4090", "t4", "l40s", "rtx-3060-12gb", "v100-sxm-32gb", "b200")

STEP = {
    "framework": one(*names.FRAMEWORKS),
    "method": one("full", "lora", "qlora"),
    "precision": one(*names.PRECISIONS),
    "optimizer": one(*names.OPTIMIZERS),
    "optimizer_impl": one(*names.OPTIMIZER_IMPLS),
    "micro_batch_size": one(1, 2, 3, 8, 32),
    "sequence_length": one(1, 100, 512, 2048, 4096, 16384),
    "gradient_accumulation_steps": one(1, 4),
    "checkpointing": one(*names.CHECKPOINTING),
    "attention": one(*names.ATTENTION),
    "loss": one(*names.LOSSES),
    "kernels": st.lists(one(*names.KERNELS), min_size=1, max_size=1),
    "head": one(*names.HEADS),
    "packing": st.booleans(),
    "compile": st.booleans(),
    "gradient_release": st.booleans(),
    "set_to_none": st.booleans(),
    "expandable_segments": st.booleans(),
    "offload_optimizer": one("none", "cpu"),
    "offload_params": one("none", "cpu"),
    "offload_activations": one("none", "cpu"),
    "padding": one(0.0, 0.25),
}
ADAPTERS = {
    "lora_rank": one(1, 8, 64, 512),
    "lora_dropout": one(0.0, 0.1),
    "lora_dtype": one("fp32", "bf16"),
    "dora": st.booleans(),
    "quantization": one(*names.BASE_QUANTIZATION),
}
LAYOUT = {
    "zero_stage": one(1, 2, 3),
    "fsdp": one(*names.FSDP),
    "fsdp_version": one(1, 2),
    "reshard_after_forward": st.booleans(),
    "tensor_parallel_size": one(2, 4, 8),
    "sequence_parallel": st.booleans(),
    "pipeline_parallel_size": one(2, 4),
    "pipeline_schedule": one(*names.PIPELINE_SCHEDULES),
    "num_microbatches": one(4, 8),
    "context_parallel_size": one(2, 4),
    "distributed_optimizer": st.booleans(),
}
POOL = {
    "dtype": one(*names.SERVE_DTYPES),
    "quantization": one(*(name for name in names.SERVE_QUANTIZATION if name != "gguf")),
    "kv_cache_dtype": one(*names.KV_CACHE_DTYPES),
    "max_model_len": one(512, 4096, 32768, 131_072, 1_000_000),
    "max_num_seqs": one(1, 16, 256, 1024),
    "max_num_batched_tokens": one(512, 2048, 8192, 65536),
    "enforce_eager": st.booleans(),
    "tensor_parallel_size": one(1, 2, 4, 8),
    "pipeline_parallel_size": one(1, 2),
}
VLLM = POOL | {
    "engine_version": one("0.6.3", "0.8.5", "0.10.2", "0.11.2", "0.17.0", "0.19.1", "0.20.0", "0.25.1", "0.33.0"),
    "gpu_memory_utilization": one(0.05, 0.5, 0.9, 0.95, 1.0),
    "block_size": one(16, 32, 128),
    "kv_cache_memory_bytes": one(2**28, 2**32, 2**35),
    "expert_parallel": st.booleans(),
    "decode_context_parallel_size": one(1, 2),
    "max_loras": one(1, 4),
    "speculative": one({"method": "ngram", "num_tokens": 3}, {"method": "eagle", "num_tokens": 3}),
}
SGLANG = POOL | {
    "mem_fraction_static": one(0.3, 0.7, 0.88, 0.97),
    "chunked_prefill_size": one(512, 8192),
    "cuda_graph_max_bs": one(1, 160),
    "expert_parallel": st.booleans(),
}
LLAMA_CPP = {
    "gguf_quant": one(*(name for name in names.GGUF_QUANTS if name != "custom")),
    "n_ctx": one(512, 4096, 32768, 131_072),
    "n_batch": one(512, 2048),
    "n_ubatch": one(128, 512, 2048),
    "flash_attn": st.booleans(),
    "cache_type_k": one("f16", "q8_0", "q4_0"),
    "cache_type_v": one("f16", "q8_0", "q4_0"),
    "n_gpu_layers": one(0, 1, 20, 99),
    "n_parallel": one(1, 4),
    "kv_unified": st.booleans(),
    "n_cpu_moe": one(0, 5, 99),
    "no_kv_offload": st.booleans(),
    "logits_all": st.booleans(),
}
GENERATION = {
    "dtype": one(*names.SERVE_DTYPES),
    "quantization": one("bitsandbytes-nf4", "bitsandbytes-int8", "awq", "gptq", "fp8", "w4a16"),
    "batch_size": one(1, 2, 32, 100),
    "prompt_tokens": one(1, 10, 1000, 8192),
    "new_tokens": one(1, 100, 2048),
    "attention": one(*names.ATTENTION),
    "num_beams": one(1, 4),
    "cache_implementation": one(*names.CACHE_IMPLEMENTATIONS),
}
MOST_SETTINGS = 6
SPLITS = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")


@st.composite
def some_of(draw: st.DrawFn, table: dict[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
    """A few keys of a table with values: whole tables at random would contradict themselves nearly always."""
    keys = draw(st.lists(st.sampled_from(sorted(table)), unique=True, max_size=MOST_SETTINGS))
    return {key: draw(table[key]) for key in keys}


@st.composite
def _scenario(draw: st.DrawFn, task: str, table: dict[str, Any], num_gpus: int | None = None) -> dict[str, Any]:
    scenario = {"model": draw(st.sampled_from(MODELS)), "task": task, "gpu": draw(one(*COMMON_CARDS) | one(*CARDS))}
    if num_gpus is not None:
        scenario["num_gpus"] = num_gpus
    return scenario | ({task: table} if table else {})


@st.composite
def training_on_one_gpu(draw: st.DrawFn) -> dict[str, Any]:
    table = draw(some_of(STEP))
    if table.get("method") in ("lora", "qlora"):
        table |= draw(some_of(ADAPTERS))
    return draw(_scenario("train", table))


@st.composite
def training_on_several(draw: st.DrawFn) -> dict[str, Any]:
    table = draw(some_of(STEP)) | draw(some_of(LAYOUT))
    if table.get("fsdp", "none") != "none":
        table.pop("zero_stage", None)
    gpus = draw(one(1, 2, 8)) * prod(table.get(split, 1) for split in SPLITS)
    scenario = draw(_scenario("train", table, max(2, gpus)))
    if scenario["model"] in WITH_EXPERTS and draw(st.booleans()):
        scenario["train"] = table | {"expert_parallel_size": 2}
    return scenario


@st.composite
def serving(draw: st.DrawFn, engines: tuple[str, ...], table: dict[str, Any]) -> dict[str, Any]:
    return draw(_scenario("serve", {"engine": draw(one(*engines)), **draw(some_of(table))}))


@st.composite
def generation(draw: st.DrawFn) -> dict[str, Any]:
    return draw(_scenario("generate", draw(some_of(GENERATION))))


@st.composite
def loading(draw: st.DrawFn) -> dict[str, Any]:
    return draw(_scenario("load", {}))


JOBS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "train on one GPU": training_on_one_gpu(),
    "train on several": training_on_several(),
    "vllm": serving(("vllm",), VLLM),
    "sglang": serving(("sglang",), SGLANG),
    "tgi and tensorrt-llm": serving(("tgi", "tensorrt-llm"), POOL),
    "transformers serve": serving(
        ("transformers",), {key: POOL[key] for key in ("dtype", "quantization", "max_model_len")}
    ),
    "llama.cpp": serving(("llama.cpp", "ollama"), LLAMA_CPP),
    "generate": generation(),
    "load": loading(),
}
SHARE = {
    "train on one GPU": 24, "train on several": 20, "vllm": 20, "sglang": 8, "tgi and tensorrt-llm": 4,
    "transformers serve": 2, "llama.cpp": 10, "generate": 10, "load": 2,
}  # fmt: skip
"""Of a hundred examples, how many each kind of job gets."""
