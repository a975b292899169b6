"""The one definition of a scenario: keys, defaults, bounds, accepted names and help.

Reading files, checking values, JSON Schema and command-line flags are all generated from the fields below.
The first name of a choice is its default. A default of None means that the engine, the framework or the
model decides; the estimate fills it in and writes it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from vramwise.scenario import names
from vramwise.scenario.fields import (
    KIND,
    OWNER,
    UNCOUNTED,
    Engines,
    choice,
    dtype_name,
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
from vramwise.scenario.values import (
    Fraction,
    Kind,
    ModelReference,
    Several,
    Share,
    Table,
    Text,
    Whole,
    choice_kind,
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Settings:
    """What the tables of a scenario share. `explicit` holds the keys that were given, not defaulted."""

    explicit: frozenset[str] = field(default=frozenset(), compare=False)

    def __repr__(self) -> str:
        # fields, not DEFAULTS: without docstrings (-OO) dataclasses show the defaults of a class while it is made
        given = {f.name: getattr(self, f.name) for f in fields(self) if KIND in f.metadata}
        changed = {f.name: given[f.name] for f in fields(self) if f.name in given and given[f.name] != f.default}
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in changed.items())})"

    def to_dict(self) -> dict[str, Any]:
        """Every key that has a value, as JSON-able data."""
        table: dict[str, Any] = {}
        for name, kind in KINDS[type(self)].items():
            value = getattr(self, name)
            if value is not None:
                table[name] = value if type(value) in _PLAIN_TYPES else kind.to_json(value)
        return table

    def replace(self, **changes: Any) -> Self:
        """A copy with other values; changed keys count as given."""
        return replace(self, **changes, explicit=self.explicit | set(changes))


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainSettings(Settings):
    """The `train` table: one step of training or fine-tuning."""

    framework: str = choice("what runs the training", names.FRAMEWORKS, names.FRAMEWORK_SPELLINGS)
    framework_version: str | None = text("versions of what runs it, as text")
    method: str = choice("which weights train", names.METHODS, {"full-finetuning": "full"})
    precision: str = choice("dtypes of weights and compute", names.PRECISIONS, names.PRECISION_SPELLINGS)
    param_dtype: str | None = dtype_name("weights, if not as precision implies")
    grad_dtype: str | None = dtype_name("gradients, if not as precision implies")
    master_dtype: str | None = dtype_name("master copy of the weights, if not as precision implies")
    optimizer_state_dtype: str | None = dtype_name("optimizer states, if not as precision implies", names.STATE_DTYPES)
    compute_dtype: str | None = dtype_name("matrix products, if not as precision implies")
    fp8_recipe: str | None = maybe(
        "Transformer Engine: how 8-bit values are scaled", names.FP8_RECIPES, names.FP8_RECIPE_SPELLINGS
    )
    fp8_transposes: bool | None = switch(
        "Transformer Engine: 8-bit weights are kept transposed too (by GPU and recipe)"
    )
    optimizer: str = choice("the optimizer", names.OPTIMIZERS, names.OPTIMIZER_SPELLINGS)
    optimizer_impl: str = choice("how the optimizer steps", names.OPTIMIZER_IMPLS, names.OPTIMIZER_IMPL_SPELLINGS)
    micro_batch_size: int = whole("sequences in one forward pass of one GPU", 1)
    sequence_length: int | None = whole("tokens in a sequence (default: the model's, at most 2,048)")
    gradient_accumulation_steps: int = whole("forward passes before the optimizer steps", 1)
    images_per_sequence: int = key(Whole(help="images in a sequence, whose tokens are among its own", minimum=0), 0)
    image_size: str | None = text("pixels of an image, WIDTHxHEIGHT (default: 1024x1024)")
    packing: bool = switch("sequences are packed without padding", False)
    padding: float = key(Fraction(help="share of a batch's tokens that is padding", below_one=True), 0.0)
    padding_free: bool | None = switch("the samples of a batch stand in one row (TRL's padding_free, flattening)")
    document_mask: bool | None = switch("packed samples do not see one another: a mask, except in flash attention")
    head: str = choice("what stands on top of the model", names.HEADS)
    checkpointing: str = choice("activation checkpointing", names.CHECKPOINTING, names.CHECKPOINTING_SPELLINGS)
    recompute: tuple[str, ...] = texts("what selective checkpointing recomputes (core_attn, mlp, op, …)")
    attention: str = choice("the attention kernel", names.TRAIN_ATTENTION, names.TRAIN_ATTENTION_SPELLINGS)
    loss: str = choice("how the loss is worked out", names.LOSSES)
    kernels: tuple[str, ...] = key(
        Several(
            help="fused kernels in use",
            item=choice_kind("a kernel library", names.KERNELS, names.KERNEL_SPELLINGS),
        ),
        (),
    )
    lora_rank: int = whole("rank of the adapters", 8)
    lora_targets: str | tuple[str, ...] = key(
        Several(
            help="modules that get adapters: all-linear or names",
            item=Text(help="a module name"),
            whole="all-linear",
        ),
        "all-linear",
    )
    lora_dropout: float = key(Fraction(help="dropout before the adapters", below_one=True), 0.0)
    lora_dtype: str = key(choice_kind("dtype of the adapters", names.DTYPES, names.DTYPE_SPELLINGS), "fp32")
    dora: bool = switch("adapters split into magnitude and direction (DoRA)", False)
    quantization: str | None = maybe(
        "format of the frozen base", names.BASE_QUANTIZATION, names.BASE_QUANTIZATION_SPELLINGS
    )
    quantize_experts: bool | None = switch("fused experts are quantized too (axolotl's quantize_moe_experts)")
    kbit_preparation: bool | None = switch("norms and embeddings in fp32, as peft prepares them")
    zero_stage: int = key(Whole(help="ZeRO stage", minimum=0, maximum=3), 0)
    reduce_bucket_size: int | None = whole("ZeRO: gradients reduced at a time, in values")
    overlap_comm: bool | None = switch("ZeRO: reductions beside the backward pass")
    contiguous_gradients: bool | None = switch("ZeRO: gradients are copied into one buffer")
    reduce_scatter: bool | None = switch("ZeRO: gradients are reduced to their owner only")
    sub_group_size: int | None = whole("ZeRO-3: values that the optimizer steps at a time")
    communication_data_type: str | None = dtype_name("ZeRO-3: dtype in which gradients are reduced")
    stage3_prefetch_bucket_size: int | None = whole("ZeRO-3: values gathered ahead by a module", minimum=0)
    stage3_param_persistence_threshold: int | None = whole("ZeRO-3: weights up to it stay whole", minimum=0)
    stage3_model_persistence_threshold: int | None = whole("ZeRO-3: most values that stay whole", minimum=0)
    stage3_max_live_parameters: int | None = whole("ZeRO-3: gathered values that end prefetching", minimum=0)
    stage3_max_reuse_distance: int | None = whole("ZeRO-3: weights used again so soon stay", minimum=0)
    zero_hpz_partition_size: int = whole("ZeRO++: ranks that share a second copy of the weights", 1)
    zero_quantized_weights: bool = switch("ZeRO++: weights are gathered as 8 bit", False)
    fsdp: str = choice("fully sharded data parallel", names.FSDP)
    fsdp_version: int = key(Whole(help="FSDP 1 or 2", maximum=2), 2)
    cpu_ram_efficient_loading: bool | None = switch("FSDP cuts quantized weights in host memory (accelerate)")
    reshard_after_forward: bool = switch("gathered weights are freed after the forward pass", True)
    tensor_parallel_size: int = whole("GPUs that share each layer", 1)
    sequence_parallel: bool = switch("norms and dropout split along the sequence (Megatron)", False)
    pipeline_parallel_size: int = whole("pipeline stages", 1)
    pipeline_layers: tuple[int, ...] = key(
        Several(help="layers of each pipeline stage, where they are not shared out evenly", item=Whole(help="layers")),
        (),
    )
    virtual_pipeline_parallel_size: int = whole("chunks of layers a stage holds", 1)
    pipeline_schedule: str = choice(
        "order of forward and backward passes", names.PIPELINE_SCHEDULES, names.PIPELINE_SCHEDULE_SPELLINGS
    )
    num_microbatches: int | None = whole("micro-batches in a pipeline step")
    context_parallel_size: int = whole("GPUs that share each sequence", 1)
    moe_overload_factor: float | None = key(
        Share(help="even shares of tokens that the fullest rank's experts get (a range up to 1.5)", optional=True)
    )
    moe_capacity_factor: float | None = key(
        Share(help="even shares of tokens that an expert takes; more are dropped", optional=True)
    )
    expert_parallel_size: int = whole("GPUs that share the experts", 1)
    expert_tensor_parallel_size: int | None = whole(
        "GPUs that share each expert (default: as tensor_parallel_size where expert_parallel_size is 1, else 1)"
    )
    distributed_optimizer: bool = switch("optimizer states sharded over data parallel (Megatron)", False)
    precision_aware_optimizer: bool | None = switch("Megatron: the optimizer works on narrow states and gradients")
    offload_optimizer: str = choice("where optimizer states live", names.OFFLOAD)
    offload_params: str = choice("where weights live", names.OFFLOAD)
    offload_activations: str = choice("where saved activations live", names.OFFLOAD)
    offload_pin_memory: bool | None = switch("ZeRO: host memory is page-locked")
    offload_optimizer_buffer_count: int | None = whole("ZeRO-3 on NVMe: buffers of a sub-group's states", minimum=0)
    offload_params_buffer_count: int | None = whole("ZeRO-3 on NVMe: buffers of weights", minimum=0)
    offload_params_buffer_size: int | None = whole("ZeRO-3 on NVMe: values of a buffer of weights", minimum=0)
    offload_params_max_in_cpu: int | None = whole("ZeRO-3 on NVMe: weights that stay in host memory", minimum=0)
    compile: bool = switch("torch.compile", False)
    clip_grad_norm: bool = switch("gradients are clipped by their norm", True)
    gradient_release: bool = switch("the optimizer steps each weight in backward, and frees its gradient", False)
    set_to_none: bool = switch("zero_grad frees the gradients; off: they stay and are zeroed", True)
    eval_batch_size: int | None = whole("sequences in an evaluation pass between steps (default: micro_batch_size)")
    expandable_segments: bool = switch("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", False)
    trainable: tuple[str, ...] = texts("which parts train, by name")
    extra_models: tuple[str, ...] = texts("other models on the GPU (reference, rollout:vllm, …)")
    rollout_gpu_memory_utilization: float | None = key(
        Fraction(help="share of each card that a rollout engine on it takes", optional=True, above_zero=True)
    )
    rollout_sleep: bool = switch("the rollout engine sleeps while the policy trains", False)


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
    fit: bool | None = switch("llama.cpp: --fit, what is left open follows the free memory", owner=LLAMA_CPP[:1])
    no_kv_offload: bool | None = switch("llama.cpp: the KV cache stays on the host", owner=LLAMA_CPP)
    mmproj: str | None = text(
        "llama.cpp: the projector's file, or auto for the model's own tower in 16 bit", owner=LLAMA_CPP
    )
    mmproj_offload: bool | None = switch("llama.cpp: the projector runs on the GPU", owner=LLAMA_CPP)
    n_parallel: int | None = whole("llama.cpp: slots", owner=LLAMA_CPP)
    logits_all: bool | None = switch(
        "llama.cpp: room for the logits of every token of a batch, not of one a slot", owner=LLAMA_CPP
    )
    kv_unified: bool | None = switch("llama.cpp: one KV buffer for all slots", owner=LLAMA_CPP[:1])
    n_cpu_moe: int | None = whole("llama.cpp: layers whose experts stay on the CPU", minimum=0, owner=LLAMA_CPP)
    cpu_moe: bool | None = switch("llama.cpp: all experts stay on the CPU", owner=LLAMA_CPP)
    override_tensor: tuple[str, ...] = texts("llama.cpp: PATTERN=DEVICE", separator=None, owner=LLAMA_CPP)
    swa_full: bool | None = switch("llama.cpp: full-size cache for sliding windows", owner=LLAMA_CPP)
    imatrix: bool | None = switch(
        "llama.cpp: quantized with an importance matrix", owner=(*LLAMA_CPP, VLLM, SGLANG, TGI)
    )
    variant: str = choice(
        "llama.cpp or ik_llama.cpp", names.LLAMA_CPP_VARIANTS, {"ik": "ik_llama.cpp"}, owner=LLAMA_CPP[:1]
    )
    mla_attn: int | None = key(
        Whole(help="ik_llama.cpp: -mla", optional=True, minimum=0, maximum=3), owner=LLAMA_CPP[:1]
    )
    attn_max_b: int | None = whole("ik_llama.cpp: -amb, MiB", minimum=0, owner=LLAMA_CPP[:1])
    fused_moe: int | None = key(
        Whole(help="ik_llama.cpp: -fmoe", optional=True, minimum=0, maximum=1), owner=LLAMA_CPP[:1]
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


@dataclass(frozen=True, kw_only=True, repr=False)
class Scenario(Settings):
    """A model, a task and the hardware: the question that an estimate answers.

    The tables of other tasks hold their defaults and mean nothing. For `task: load`, `serve` may say for
    which engine the weights are loaded (`"engine" in scenario.serve.explicit`). `notes` say what reading the
    scenario resolved by itself; they belong into the result.
    """

    model: str | Mapping[str, Any] = key(ModelReference(help="model: catalog id, hub id, URL or path"), "", hash=False)
    task: str = key(choice_kind("what the GPU is for", names.TASKS), "")
    gpu: str | None = text("GPU, by id or alias (h100-sxm-80gb, 4090)")
    gpu_total_bytes: int | None = size("exact memory of one GPU, where known")
    num_gpus: int = whole("GPUs in all; 0 is CPU only (llama.cpp)", 1, minimum=0)
    gpus_per_node: int = whole("GPUs in a node", 8)
    train: TrainSettings = TrainSettings()
    serve: ServeSettings = ServeSettings()
    generate: GenerateSettings = GenerateSettings()
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Scenario:
        """Read and check a scenario. Raises ScenarioError with the path of what is wrong."""
        from vramwise.scenario.reading import read_scenario

        return read_scenario(data)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {table_of(self.task)}={self.settings!r})"

    @property
    def settings(self) -> TrainSettings | ServeSettings | GenerateSettings:
        """The table of the scenario's task (`load`: serve)."""
        if self.task == "train":
            return self.train
        return self.generate if self.task == "generate" else self.serve

    def to_dict(self) -> dict[str, Any]:
        """Everything that has a value, defaults included, with the task's own table only."""
        table = super().to_dict()
        if self.task != "load":
            table[self.task] = self.settings.to_dict()
        elif self.serve.explicit:
            table["serve"] = self.serve.to_dict()
        return table


TABLES: dict[str, type[Settings]] = {
    "train": TrainSettings,
    "serve": ServeSettings,
    "generate": GenerateSettings,
}
"""Task tables by name."""

KINDS: dict[type[Settings], dict[str, Kind]] = {
    cls: {f.name: f.metadata[KIND] for f in fields(cls) if KIND in f.metadata}
    for cls in (Scenario, TrainSettings, ServeSettings, GenerateSettings)
}
"""The kind of every key, by table."""

DEFAULTS: dict[type[Settings], dict[str, Any]] = {
    cls: {f.name: f.default for f in fields(cls) if f.name in kinds} for cls, kinds in KINDS.items()
}
"""The default of every key, by table."""

OWNERS: dict[str, Engines] = {f.name: f.metadata[OWNER] for f in fields(ServeSettings) if KIND in f.metadata}
"""The engines whose answer follows a key of the `serve` table."""

UNCOUNTED_ENGINES: dict[str, Engines] = {
    f.name: f.metadata[UNCOUNTED] for f in fields(ServeSettings) if KIND in f.metadata
}
"""The engines that have such a setting, but whose answer leaves it out."""


def engines_of(key: str) -> Engines:
    """The engines that have a key of the `serve` table."""
    return (*OWNERS[key], *UNCOUNTED_ENGINES[key]) if OWNERS[key] else names.ENGINES


_PLAIN_TYPES = (str, int, float, bool)


def table_of(task: str) -> str:
    """The name of the task's table: its own, and `serve` for `load`."""
    return "serve" if task == "load" else task
