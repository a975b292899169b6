"""The tables of inference: `serve`, whose keys say which engines they belong to, and `generate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from vramwise.scenario import names
from vramwise.scenario.fields import (
    KIND,
    OWNER,
    UNCOUNTED,
    Engines,
    choice,
    key,
    maybe,
    size,
    switch,
    text,
    texts,
    whole,
)
from vramwise.scenario.names import LLAMA_CPP_ENGINES as LLAMA_CPP
from vramwise.scenario.names import SERVERS, SGLANG, TENSORRT_LLM, TGI, TRANSFORMERS, VLLM
from vramwise.scenario.settings import Settings
from vramwise.scenario.values import Fraction, Several, Share, Table, Text, Whole, choice_kind

NOT_OLLAMA = LLAMA_CPP[:1]


@dataclass(frozen=True, kw_only=True, repr=False)
class ServeSettings(Settings):
    """The `serve` table: an inference engine and its budgets."""

    engine: str = choice("the inference engine", names.ENGINES, names.ENGINE_SPELLINGS)
    engine_version: str | None = text("its version, as text; defaults differ by version")
    dtype: str = choice("dtype of weights and compute", names.SERVE_DTYPES, names.DTYPE_SPELLINGS, owner=SERVERS)
    quantization: str | None = maybe(
        "format of the weights", names.SERVE_QUANTIZATION, names.SERVE_QUANTIZATION_SPELLINGS, owner=SERVERS
    )
    quantization_group_size: int = whole("weights that share one scale", 128, owner=SERVERS)
    kv_cache_dtype: str = choice("dtype of the KV cache", names.KV_CACHE_DTYPES, names.DTYPE_SPELLINGS, owner=SERVERS)
    max_model_len: int | None = whole("tokens of the longest request")
    gpu_memory_utilization: float | None = key(
        Fraction(help="share of the card that the engine may take", optional=True, above_zero=True),
        owner=(VLLM, TGI, TENSORRT_LLM),
    )
    max_num_seqs: int | None = whole("requests that run at once", owner=SERVERS)
    max_num_batched_tokens: int | None = whole(
        "tokens in one step", owner=(VLLM, TGI, TENSORRT_LLM), uncounted=(SGLANG,)
    )
    enforce_eager: bool | None = switch("no CUDA graphs", owner=(VLLM, SGLANG), uncounted=(TGI, TENSORRT_LLM))
    block_size: int | None = whole("tokens in a KV cache block", owner=(VLLM, SGLANG, TGI, TENSORRT_LLM))
    kv_cache_memory_bytes: int | None = size("size of the KV cache, instead of what is left", owner=(VLLM,))
    limit_mm_per_prompt: Mapping[str, int] | None = key(
        Table(
            help="media items in a prompt (image=2)",
            optional=True,
            value=Whole(help="how many", minimum=0),
        ),
        hash=False,
        owner=(VLLM,),
        uncounted=(SGLANG,),
    )
    max_loras: int | None = whole("adapters in one batch", owner=(VLLM,), uncounted=(SGLANG, TGI, TENSORRT_LLM))
    max_lora_rank: int | None = whole("largest adapter rank", owner=(VLLM,), uncounted=(SGLANG, TGI, TENSORRT_LLM))
    speculative: Mapping[str, Any] | None = key(
        Table(
            help="speculative decoding (method=eagle,num_tokens=3)",
            optional=True,
            keys={
                "method": Text(help="how tokens are drafted"),
                "num_tokens": Whole(help="drafted tokens"),
                "model": Text(help="the draft model"),
                "gguf_quant": choice_kind(
                    "llama.cpp: quantization of the draft's file", names.GGUF_QUANTS, names.GGUF_QUANT_SPELLINGS
                ),
                "n_gpu_layers": Whole(help="llama.cpp: layers of the draft on the GPU", minimum=0),
            },
        ),
        hash=False,
        owner=(VLLM, *LLAMA_CPP),
        uncounted=(SGLANG, TGI, TENSORRT_LLM),
    )
    tensor_parallel_size: int = whole(
        "GPUs that share each layer", 1, owner=(VLLM, SGLANG, TGI, TENSORRT_LLM, *LLAMA_CPP), uncounted=(TRANSFORMERS,)
    )
    pipeline_parallel_size: int = whole(
        "pipeline stages", 1, owner=(VLLM, SGLANG, TENSORRT_LLM), uncounted=(TRANSFORMERS,)
    )
    data_parallel_size: int = whole("copies of the model", 1, owner=(VLLM, SGLANG, TENSORRT_LLM))
    expert_parallel: bool = switch("experts are spread whole over the GPUs", False, owner=(VLLM, SGLANG, TENSORRT_LLM))
    decode_context_parallel_size: int = whole(
        "GPUs that share the KV cache of a request", 1, owner=(VLLM,), uncounted=(SGLANG,)
    )
    enable_prefix_caching: bool | None = switch(
        "vLLM, SGLang: blocks of earlier requests are used again", owner=(VLLM, SGLANG), uncounted=(TGI, TENSORRT_LLM)
    )
    use_v1: bool | None = switch("vLLM 0.8 to 0.10: the newer engine (VLLM_USE_V1)", owner=(VLLM,))
    flashinfer_sampler: bool | None = switch(
        "vLLM up to 0.16: FlashInfer samples (in 0.8 to 0.10 where it is installed)", owner=(VLLM,)
    )
    disable_hybrid_kv_cache_manager: bool | None = switch(
        "vLLM: sliding layers are charged as full attention", owner=(VLLM,)
    )
    mem_fraction_static: float | None = key(
        Fraction(help="SGLang: share for weights and KV cache", optional=True, above_zero=True), owner=(SGLANG,)
    )
    chunked_prefill_size: int | None = whole("SGLang: tokens in a prefill chunk", owner=(SGLANG,))
    cuda_graph_max_bs: int | None = whole("SGLang: largest captured batch", owner=(SGLANG,))
    max_total_tokens: int | None = whole("SGLang: most tokens in the KV cache", owner=(SGLANG,))
    gguf_quant: str | None = maybe(
        "llama.cpp: quantization of the file",
        names.GGUF_QUANTS,
        names.GGUF_QUANT_SPELLINGS,
        owner=(*LLAMA_CPP, VLLM, SGLANG, TGI),
    )
    n_ctx: int | None = whole("llama.cpp: context in tokens", owner=LLAMA_CPP)
    n_batch: int | None = whole("llama.cpp: logical batch", owner=LLAMA_CPP)
    n_ubatch: int | None = whole("llama.cpp: physical batch", owner=LLAMA_CPP)
    flash_attn: bool | None = switch("llama.cpp: flash attention", owner=LLAMA_CPP)
    cache_type_k: str | None = maybe(
        "llama.cpp: type of the K cache", names.LLAMA_CPP_CACHE_TYPES, names.LLAMA_CPP_CACHE_SPELLINGS, owner=LLAMA_CPP
    )
    cache_type_v: str | None = maybe(
        "llama.cpp: type of the V cache", names.LLAMA_CPP_CACHE_TYPES, names.LLAMA_CPP_CACHE_SPELLINGS, owner=LLAMA_CPP
    )
    n_gpu_layers: int | None = whole("llama.cpp: layers on the GPU", minimum=0, owner=LLAMA_CPP)
    tensor_split: tuple[float, ...] = key(
        Several(help="llama.cpp: shares of the layers by GPU (3,1)", item=Share(help="a share")), (), owner=LLAMA_CPP
    )
    split_mode: str | None = maybe(
        "llama.cpp: how several GPUs share the model", names.LLAMA_CPP_SPLIT_MODES, owner=LLAMA_CPP
    )
    main_gpu: int | None = whole("llama.cpp: the GPU of split mode none", minimum=0, owner=LLAMA_CPP)
    fit: bool | None = switch("llama.cpp: --fit, what is left open follows the free memory", owner=NOT_OLLAMA)
    no_kv_offload: bool | None = switch("llama.cpp: the KV cache stays on the host", owner=LLAMA_CPP)
    mmproj: str | None = text(
        "llama.cpp: the projector's file, or auto for the model's own tower in 16 bit", owner=LLAMA_CPP
    )
    mmproj_offload: bool | None = switch("llama.cpp: the projector runs on the GPU", owner=LLAMA_CPP)
    n_parallel: int | None = whole("llama.cpp: slots", owner=LLAMA_CPP)
    logits_all: bool | None = switch(
        "llama.cpp: room for the logits of every token of a batch, not of one a slot", owner=LLAMA_CPP
    )
    kv_unified: bool | None = switch("llama.cpp: one KV buffer for all slots", owner=NOT_OLLAMA)
    n_cpu_moe: int | None = whole("llama.cpp: layers whose experts stay on the CPU", minimum=0, owner=LLAMA_CPP)
    cpu_moe: bool | None = switch("llama.cpp: all experts stay on the CPU", owner=LLAMA_CPP)
    override_tensor: tuple[str, ...] = texts("llama.cpp: PATTERN=DEVICE", separator=None, owner=LLAMA_CPP)
    swa_full: bool | None = switch("llama.cpp: full-size cache for sliding windows", owner=LLAMA_CPP)
    imatrix: bool | None = switch(
        "llama.cpp: quantized with an importance matrix", owner=(*LLAMA_CPP, VLLM, SGLANG, TGI)
    )
    variant: str = choice(
        "llama.cpp or ik_llama.cpp", names.LLAMA_CPP_VARIANTS, {"ik": "ik_llama.cpp"}, owner=NOT_OLLAMA
    )
    mla_attn: int | None = key(Whole(help="ik_llama.cpp: -mla", optional=True, minimum=0, maximum=3), owner=NOT_OLLAMA)
    attn_max_b: int | None = whole("ik_llama.cpp: -amb, MiB", minimum=0, owner=NOT_OLLAMA)
    fused_moe: int | None = key(
        Whole(help="ik_llama.cpp: -fmoe", optional=True, minimum=0, maximum=1), owner=NOT_OLLAMA
    )

    def to_dict(self) -> dict[str, Any]:
        """Every key that has a value and belongs to the engine, as JSON-able data."""
        table = super().to_dict()
        return {key: value for key, value in table.items() if self.engine in engines_of(key)}


@dataclass(frozen=True, kw_only=True, repr=False)
class GenerateSettings(Settings):
    """The `generate` table: plain transformers inference."""

    engine: str = choice("transformers", ("transformers",), {"hf": "transformers"})
    engine_version: str | None = text("its version, as text")
    dtype: str = choice("dtype of weights and compute", names.SERVE_DTYPES, names.DTYPE_SPELLINGS)
    quantization: str | None = maybe(
        "format of the weights", names.SERVE_QUANTIZATION, names.SERVE_QUANTIZATION_SPELLINGS
    )
    quantization_group_size: int = whole("weights that share one scale", 128)
    batch_size: int = whole("prompts at once", 1)
    prompt_tokens: int | None = whole("tokens of a prompt")
    new_tokens: int | None = whole("tokens that are generated")
    attention: str = choice("the attention kernel", names.ATTENTION, names.ATTENTION_SPELLINGS)
    kv_cache_dtype: str = choice("dtype of the KV cache", names.KV_CACHE_DTYPES, names.DTYPE_SPELLINGS)
    num_beams: int = whole("beams of beam search", 1)
    cache_implementation: str = choice("how generate keeps keys and values", names.CACHE_IMPLEMENTATIONS)


OWNERS: dict[str, Engines] = {f.name: f.metadata[OWNER] for f in fields(ServeSettings) if KIND in f.metadata}
"""The engines whose answer follows a key of the `serve` table."""

UNCOUNTED_ENGINES: dict[str, Engines] = {
    f.name: f.metadata[UNCOUNTED] for f in fields(ServeSettings) if KIND in f.metadata
}
"""The engines that have such a setting, but whose answer leaves it out."""


def engines_of(key: str) -> Engines:
    """The engines that have a key of the `serve` table."""
    return (*OWNERS[key], *UNCOUNTED_ENGINES[key]) if OWNERS[key] else names.ENGINES
