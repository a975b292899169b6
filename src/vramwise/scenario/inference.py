"""The tables of inference: `serve`, whose keys say which engines they belong to, and `generate`."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.engines import added_engines, engine_named
from vramwise.records import record
from vramwise.scenario import names
from vramwise.scenario.fields import AllOrSeveral, Several, Table, choice, key, maybe, size, switch, text, texts, whole
from vramwise.scenario.settings import (
    IK_LLAMA_CPP,
    LLAMA_CPP,
    MLX,
    OLLAMA,
    SGLANG,
    TENSORRT_LLM,
    TGI,
    TRANSFORMERS,
    VLLM,
    Settings,
    ownership_of,
)
from vramwise.scenario.values import Fraction, Kind, Number, Share, Text, Whole, choice_kind

SERVERS = VLLM, SGLANG, TGI, TENSORRT_LLM, TRANSFORMERS, MLX
LLAMA_CPPS = LLAMA_CPP, OLLAMA  # ollama runs llama.cpp


_SPECULATIVE: dict[str, Kind[str | int]] = {
    "method": Text(help="how tokens are drafted"),
    "num_tokens": Whole(help="drafted tokens"),
    "model": Text(help="the draft model"),
    "gguf_quant": choice_kind("quantization of the draft's file", names.GGUF_QUANTS, names.GGUF_QUANT_SPELLINGS),
    "n_gpu_layers": Whole(help="layers of the draft on the GPU", minimum=0),
    "cache_type_k": choice_kind(
        "type of the draft's K cache", names.LLAMA_CPP_CACHE_TYPES, names.LLAMA_CPP_CACHE_SPELLINGS
    ),
    "cache_type_v": choice_kind(
        "type of the draft's V cache", names.LLAMA_CPP_CACHE_TYPES, names.LLAMA_CPP_CACHE_SPELLINGS
    ),
}


@record(kw_only=True, repr=False, slots=False)
class ServeSettings(Settings):
    """The `serve` table: an inference engine and its budgets."""

    engine: str = choice(
        "the inference engine", names.ENGINES, names.ENGINE_SPELLINGS, meant=names.ENGINES_MEANT, more=added_engines
    )
    engine_version: str | None = text("its version, as text; defaults differ by version")
    dtype: str = choice(
        "dtype of weights and compute",
        names.SERVE_DTYPES,
        names.DTYPE_SPELLINGS,
        meant=names.SERVE_DTYPES_MEANT,
        owner=SERVERS,
    )
    quantization: str | None = maybe(
        "format of the weights", names.SERVE_QUANTIZATION, names.SERVE_QUANTIZATION_SPELLINGS,
        meant=names.SERVE_QUANTIZATION_MEANT, owner=SERVERS,
    )  # fmt: skip
    quantization_group_size: int | None = whole(
        "weights that share one scale (default: the format's own)", owner=SERVERS
    )
    kv_cache_dtype: str = choice(
        "dtype of the KV cache",
        (*names.KV_CACHE_DTYPES, *names.PACKED_CACHE_DTYPES),
        names.CACHE_DTYPE_SPELLINGS,
        owner=SERVERS,
    )
    mamba_ssm_cache_dtype: str = choice(
        "dtype of the recurrent states", names.RECURRENT_STATE_DTYPES, names.DTYPE_SPELLINGS, owner=(VLLM, SGLANG)
    )
    max_model_len: int | None = whole("tokens of the longest request")
    gpu_memory_utilization: float | None = key(
        Fraction(help="share of the card that the engine may take", optional=True, above_zero=True),
        None,
        owner=(VLLM, TGI, TENSORRT_LLM),
    )
    max_num_seqs: int | None = whole("requests that run at once", owner=SERVERS)
    max_num_batched_tokens: int | None = whole(
        "tokens in one step", owner=(VLLM, TGI, TENSORRT_LLM), uncounted=(SGLANG,)
    )
    enforce_eager: bool | None = switch("no CUDA graphs", owner=(VLLM, SGLANG), uncounted=(TGI, TENSORRT_LLM))
    cudagraph_capture_sizes: tuple[int, ...] = key(
        Several(help="batches that are captured as CUDA graphs (1,2,4,8)", item=Whole(help="a batch")),
        (),
        owner=(VLLM, SGLANG),
    )
    block_size: int | None = whole("tokens in a KV cache block", owner=(VLLM, SGLANG, TGI, TENSORRT_LLM))
    sleep_level: int | None = key(
        Whole(help="what it keeps while it sleeps: 1 its weights in host memory, 2 nothing", optional=True, maximum=2),
        None,
        owner=VLLM,
    )
    cpu_offload_gb: float | None = key(
        Share(help="GiB of weights that a GPU leaves in host memory", optional=True), None, owner=(VLLM, SGLANG)
    )
    kv_cache_memory_bytes: int | None = size("size of the KV cache, instead of what is left", owner=VLLM)
    limit_mm_per_prompt: Mapping[str, int] | None = key(
        Table(
            help="media items in a prompt (image=2)",
            optional=True,
            value=Whole(help="how many", minimum=0),
        ),
        None,
        hash=False,
        owner=VLLM,
        uncounted=(SGLANG,),
    )
    language_model_only: bool | None = switch("no media may come, and towers are not loaded", owner=VLLM)
    skip_mm_profiling: bool | None = switch("no image is encoded in the profile run", owner=VLLM)
    pooling: bool | None = switch("it answers with embeddings or scores: no output head (--runner pooling)", owner=VLLM)
    max_loras: int | None = whole(
        "adapters in one batch, or loaded", owner=(VLLM, SGLANG, TGI, TENSORRT_LLM, *LLAMA_CPPS)
    )
    max_lora_rank: int | None = whole("largest adapter rank", owner=(VLLM, SGLANG, TGI, TENSORRT_LLM, *LLAMA_CPPS))
    lora_targets: str | tuple[str, ...] = key(
        AllOrSeveral(
            help="modules that get adapters: all-linear or names",
            item=Text(help="a module name"),
            whole="all-linear",
        ),
        "all-linear",
        owner=(SGLANG, TGI, TENSORRT_LLM, *LLAMA_CPPS),
    )
    speculative: Mapping[str, str | int] | None = key(
        Table(help="speculative decoding (method=eagle,num_tokens=3)", optional=True, keys=_SPECULATIVE),
        None,
        hash=False,
        owner=(VLLM, *LLAMA_CPPS),
        uncounted=(SGLANG, TGI, TENSORRT_LLM),
    )
    tensor_parallel_size: int = whole(
        "GPUs that share each layer", 1, owner=(VLLM, SGLANG, TGI, TENSORRT_LLM, *LLAMA_CPPS), uncounted=(TRANSFORMERS,)
    )
    pipeline_parallel_size: int = whole(
        "pipeline stages", 1, owner=(VLLM, SGLANG, TENSORRT_LLM), uncounted=(TRANSFORMERS,)
    )
    pipeline_layer_partition: tuple[int, ...] = key(
        Several(help="layers of each pipeline stage (20,12)", item=Whole(help="how many")), (), owner=(VLLM, SGLANG)
    )
    data_parallel_size: int = whole("copies of the model", 1, owner=(VLLM, SGLANG, TENSORRT_LLM))
    expert_parallel: bool = switch("experts are spread whole over the GPUs", False, owner=(VLLM, SGLANG, TENSORRT_LLM))
    decode_context_parallel_size: int = whole(
        "GPUs that share the KV cache of a request", 1, owner=VLLM, uncounted=(SGLANG,)
    )
    enable_prefix_caching: bool | None = switch(
        "blocks of earlier requests are used again", owner=(VLLM, SGLANG), uncounted=(TGI, TENSORRT_LLM)
    )
    use_v1: bool | None = switch("vLLM 0.8 to 0.10: the newer engine (VLLM_USE_V1)", owner=VLLM)
    flashinfer_sampler: bool | None = switch(
        "vLLM up to 0.16: FlashInfer samples (in 0.8 to 0.10 where it is installed)", owner=VLLM
    )
    use_v2_runner: bool | None = switch(
        "vLLM from 0.22: the second model runner (VLLM_USE_V2_MODEL_RUNNER)", owner=VLLM
    )
    offline_inference: bool = switch(
        "vLLM runs in a script (LLM), not as a server: it batches more tokens by default", False, owner=VLLM
    )
    first_start: bool | None = switch("no earlier start left compiled graphs: this one compiles", owner=VLLM)
    moe_backend: str | None = text("kernels of routed experts: cutlass for vLLM's own in 4 bits", owner=VLLM)
    disable_hybrid_kv_cache_manager: bool | None = switch("sliding layers are charged as full attention", owner=VLLM)
    mem_fraction_static: float | None = key(
        Fraction(help="share for weights and KV cache", optional=True, above_zero=True), None, owner=SGLANG
    )
    chunked_prefill_size: int | None = whole("tokens in a prefill chunk", owner=SGLANG)
    cuda_graph_max_bs: int | None = whole("largest captured batch", owner=SGLANG)
    max_total_tokens: int | None = whole("most tokens in the KV cache", owner=SGLANG)
    swa_full_tokens_ratio: float | None = key(
        Fraction(help="tokens of windowed layers for each of full ones", optional=True, above_zero=True),
        None,
        owner=SGLANG,
    )
    gguf_quant: str | None = maybe(
        "GGUF type of the file (Q4_K_M)",
        names.GGUF_QUANTS,
        names.GGUF_QUANT_SPELLINGS,
        meant=names.GGUF_QUANT_MEANT,
        owner=(*LLAMA_CPPS, VLLM, SGLANG, TGI),
    )
    n_ctx: int | None = whole("context in tokens", owner=LLAMA_CPPS)
    n_batch: int | None = whole("logical batch", owner=LLAMA_CPPS)
    n_ubatch: int | None = whole("physical batch", owner=LLAMA_CPPS)
    flash_attn: bool | None = switch("flash attention", owner=LLAMA_CPPS)
    cache_type_k: str | None = maybe(
        "type of the K cache", names.LLAMA_CPP_CACHE_TYPES, names.LLAMA_CPP_CACHE_SPELLINGS, owner=LLAMA_CPPS
    )
    cache_type_v: str | None = maybe(
        "type of the V cache", names.LLAMA_CPP_CACHE_TYPES, names.LLAMA_CPP_CACHE_SPELLINGS, owner=LLAMA_CPPS
    )
    n_gpu_layers: int | None = whole("layers on the GPU", minimum=0, owner=LLAMA_CPPS)
    tensor_split: tuple[float, ...] = key(
        Several(help="shares of the layers by GPU (3,1)", item=Share(help="a share")), (), owner=LLAMA_CPPS
    )
    split_mode: str | None = maybe("how several GPUs share the model", names.LLAMA_CPP_SPLIT_MODES, owner=LLAMA_CPPS)
    ggml_backend: str | None = maybe(
        "what runs on the GPUs (the card's own; cuda is ROCm's code too)", names.LLAMA_CPP_BACKENDS, owner=LLAMA_CPPS
    )
    main_gpu: int | None = whole("the GPU of split mode none", minimum=0, owner=LLAMA_CPPS)
    fit: bool | None = switch("--fit, what is left open follows the free memory", owner=LLAMA_CPP)
    no_kv_offload: bool | None = switch("the KV cache stays on the host", owner=LLAMA_CPPS)
    mmproj: str | None = text("the projector's file, or auto for the model's own tower in 16 bit", owner=LLAMA_CPPS)
    mmproj_offload: bool | None = switch("the projector runs on the GPU", owner=LLAMA_CPPS)
    n_parallel: int | None = whole("slots", owner=LLAMA_CPPS)
    logits_all: bool | None = switch(
        "room for the logits of every token of a batch, not of one a slot", owner=LLAMA_CPPS
    )
    kv_unified: bool | None = switch("one KV buffer for all slots", owner=LLAMA_CPP)
    n_cpu_moe: int | None = whole("layers whose experts stay on the CPU", minimum=0, owner=LLAMA_CPPS)
    cpu_moe: bool | None = switch("all experts stay on the CPU", owner=LLAMA_CPPS)
    override_tensor: tuple[str, ...] = texts("PATTERN=DEVICE", separator=None, owner=LLAMA_CPPS)
    swa_full: bool | None = switch("full-size cache for sliding windows", owner=LLAMA_CPPS)
    imatrix: bool | None = switch("quantized with an importance matrix", owner=(*LLAMA_CPPS, VLLM, SGLANG, TGI))
    variant: str = choice(
        "llama.cpp or ik_llama.cpp", names.LLAMA_CPP_VARIANTS, {"ik": "ik_llama.cpp"}, owner=LLAMA_CPP
    )
    kv_bits: int | None = key(
        Whole(help="bits of the KV cache's quantization", optional=True, minimum=2, maximum=8), None, owner=MLX
    )
    kv_group_size: int | None = whole("values of the KV cache that share a scale", owner=MLX)
    quantized_kv_start: int | None = whole("tokens from which the KV cache is quantized", minimum=0, owner=MLX)
    max_kv_size: int | None = whole("most tokens in a rotating KV cache", owner=MLX)
    prefill_step_size: int | None = whole("tokens of a prompt in one step", owner=MLX)
    mla_attn: int | None = key(Whole(help="-mla", optional=True, minimum=0, maximum=3), None, owner=IK_LLAMA_CPP)
    attn_max_b: int | None = whole("-amb, MiB", minimum=0, owner=IK_LLAMA_CPP)
    run_time_repack: bool | None = switch("-rtr, weights on the host are repacked for the CPU", owner=IK_LLAMA_CPP)
    fused_moe: int | None = key(Whole(help="-fmoe", optional=True, minimum=0, maximum=1), None, owner=IK_LLAMA_CPP)

    def to_dict(self) -> dict[str, object]:
        """Every key that has a value and belongs to the engine, as JSON-able data."""
        table = super().to_dict()
        return {key: value for key, value in table.items() if has_key(self.engine, key)}


@record(kw_only=True, repr=False, slots=False)
class GenerateSettings(Settings):
    """The `generate` table: plain transformers inference."""

    engine: str = choice("transformers", ("transformers",), {"hf": "transformers"})
    engine_version: str | None = text("its version, as text")
    dtype: str = choice(
        "dtype of weights and compute", names.SERVE_DTYPES, names.DTYPE_SPELLINGS, meant=names.SERVE_DTYPES_MEANT
    )
    quantization: str | None = maybe(
        "format of the weights", names.SERVE_QUANTIZATION, names.SERVE_QUANTIZATION_SPELLINGS,
        meant=names.SERVE_QUANTIZATION_MEANT,
    )  # fmt: skip
    quantization_group_size: int | None = whole("weights that share one scale (default: the format's own)")
    batch_size: int = whole("prompts at once", 1)
    prompt_tokens: int | None = whole("tokens of a prompt")
    new_tokens: int | None = whole("tokens that are generated")
    attention: str = choice("the attention kernel", names.ATTENTION, names.ATTENTION_SPELLINGS)
    kv_cache_dtype: str = choice("dtype of the KV cache", names.KV_CACHE_DTYPES, names.DTYPE_SPELLINGS)
    num_beams: int = whole("beams of beam search", 1)
    cache_implementation: str = choice("how generate keeps keys and values", names.CACHE_IMPLEMENTATIONS)
    prompt_logits: bool | None = switch("the prompt is scored: every token gets its logits, and nothing is generated")
    image_size: str | None = text("image and video pipelines: pixels of what is made, WIDTHxHEIGHT")
    num_frames: int | None = whole("video pipelines: frames of what is made")
    vae_tiling: bool | None = switch("image and video pipelines: the VAE decodes tile by tile")
    vae_slicing: bool | None = switch("image and video pipelines: the VAE decodes one image at a time")
    offload: str | None = maybe("image and video pipelines: which weights wait in host memory", names.OFFLOADS)
    guidance_scale: float | None = key(
        Number(help="image and video pipelines: guidance; above 1 the denoiser works on two of each", optional=True),
        None,
    )


PIPELINE_KEYS = ("image_size", "num_frames", "vae_tiling", "vae_slicing", "offload", "guidance_scale")
"""Keys of the `generate` table that image and video pipelines have alone."""
TEXT_KEYS = ("new_tokens", "kv_cache_dtype", "num_beams", "cache_implementation", "prompt_logits")
"""Those that models of text have alone."""


def engines_of(key: str) -> tuple[str, ...]:
    """The engines that have a key of the `serve` table."""
    return tuple(engine for engine in names.ENGINES if has_key(engine, key))


def has_key(engine: str, key: str) -> bool:
    """Whether an engine has a key of the `serve` table."""
    whose = ownership_of(ServeSettings)[key].all
    if not whose:
        return True
    return key not in engine_named(engine).lacks and any((owner.within or owner).is_there(engine) for owner in whose)


def counts(engine: str, key: str) -> bool:
    """Whether an engine's answer follows a key of the `serve` table."""
    owners, record = ownership_of(ServeSettings)[key].owners, engine_named(engine)
    if key in record.lacks or key in record.uncounted:
        return False
    return not owners or any((owner.within or owner).is_there(engine) for owner in owners)
