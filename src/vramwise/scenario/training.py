"""The `train` table: one step of training or fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.records import record
from vramwise.scenario import names
from vramwise.scenario.fields import (
    AllOrSeveral,
    Several,
    Table,
    choice,
    dtype_name,
    key,
    maybe,
    switch,
    text,
    texts,
    whole,
)
from vramwise.scenario.settings import (
    COMPILE,
    CONTEXT_PARALLEL,
    EXPERT_PARALLEL,
    FLOAT8,
    FP8,
    FSDP,
    IMAGES,
    LORA,
    MEGATRON,
    PIPELINE,
    PIPELINE_STAGES,
    QUANTIZED_BASE,
    ROLLOUT,
    TENSOR_PARALLEL,
    ZERO,
    ZERO_3,
    Settings,
)
from vramwise.scenario.values import Fraction, Share, Text, Whole, choice_kind

_SAMPLE_LENGTHS = {
    "fixed": Whole(help="every sample"), "mean": Whole(help="a sample on average"),
    "spread": Whole(help="standard deviation", minimum=0), "maximum": Whole(help="the longest sample"),
}  # fmt: skip


@record(kw_only=True, repr=False, slots=False)
class TrainSettings(Settings):
    """The `train` table: one step of training or fine-tuning."""

    framework: str = choice(
        "what runs the training", names.FRAMEWORKS, names.FRAMEWORK_SPELLINGS, more=names.added_frameworks
    )
    framework_version: str | None = text("versions of what runs it, as text")
    method: str = choice("which weights train", names.METHODS, {"full-finetuning": "full"})
    precision: str = choice(
        "dtypes of weights and compute", names.PRECISIONS, names.PRECISION_SPELLINGS, meant=names.PRECISIONS_MEANT
    )
    param_dtype: str | None = dtype_name("weights, if not as precision implies")
    grad_dtype: str | None = dtype_name("gradients, if not as precision implies")
    master_dtype: str | None = dtype_name("master copy of the weights, if not as precision implies")
    optimizer_state_dtype: str | None = dtype_name("optimizer states, if not as precision implies", names.STATE_DTYPES)
    compute_dtype: str | None = dtype_name("matrix products, if not as precision implies")
    fp8_recipe: str | None = maybe(
        "how 8-bit values are scaled", names.FP8_RECIPES, names.FP8_RECIPE_SPELLINGS, owner=FP8
    )
    fp8_transposes: bool | None = switch("8-bit weights are kept transposed too (by GPU and recipe)", owner=FP8)
    fp8_operands: str | None = maybe(
        "what torchao's products keep in 8 bits: none, inputs and weights (saved), or inputs alone (recomputed)",
        names.FP8_OPERANDS,
        owner=FLOAT8,
    )
    fp8_all_gather: bool = switch("FSDP gathers the products' weights in 8 bits (torchao)", False, owner=FLOAT8)
    optimizer: str = choice("the optimizer", names.OPTIMIZERS, names.OPTIMIZER_SPELLINGS)
    optimizer_impl: str = choice("how the optimizer steps", names.OPTIMIZER_IMPLS, names.OPTIMIZER_IMPL_SPELLINGS)
    micro_batch_size: int = whole("sequences in one forward pass of one GPU", 1)
    sequence_length: int | None = whole("tokens in a sequence (default: the model's, at most 2,048)")
    decoder_sequence_length: int | None = whole(
        "tokens that the decoder of an encoder-decoder reads (default: as many as the encoder)"
    )
    gradient_accumulation_steps: int = whole("forward passes before the optimizer steps", 1)
    images_per_sequence: int = key(Whole(help="images in a sequence, whose tokens are among its own", minimum=0), 0)
    image_size: str | None = text("pixels of an image, WIDTHxHEIGHT (default: 1024x1024)", owner=IMAGES)
    sample_lengths: Mapping[str, int] | None = key(
        Table(help="tokens of samples: fixed=N, or mean=N,spread=N,maximum=N", optional=True, keys=_SAMPLE_LENGTHS),
        None,
        hash=False,
    )
    packing: bool = switch("sequences are packed without padding", False)
    padding: float = key(Fraction(help="share of a batch's tokens that is padding", below_one=True), 0.0)
    padding_free: bool | None = switch("the samples of a batch stand in one row (TRL's padding_free, flattening)")
    document_mask: bool | None = switch("packed samples do not see one another: a mask, except in flash attention")
    head: str = choice("what stands on top of the model", names.HEADS)
    checkpointing: str = choice("activation checkpointing", names.CHECKPOINTING, names.CHECKPOINTING_SPELLINGS)
    recompute: tuple[str, ...] = texts("what selective checkpointing recomputes (core_attn, mlp, op, …)")
    attention: str = choice("the attention kernel", names.TRAIN_ATTENTION, names.TRAIN_ATTENTION_SPELLINGS)
    loss: str = choice("how the loss is worked out", names.LOSSES)
    keeps_outputs: bool | None = switch("the loop names the logits until the next ones, if not as the framework does")
    step_function: bool = switch("a step is a function of its own, whose variables are gone when it returns", False)
    loss_upcast: bool | None = switch("logits become fp32 for the loss, if not as the framework has it")
    kernels: tuple[str, ...] = key(
        Several(
            help="fused kernels in use",
            item=choice_kind("a kernel library", names.KERNELS, names.KERNEL_SPELLINGS, names.added_kernels),
        ),
        (),
    )
    lora_rank: int = whole("rank of the adapters", 8, owner=LORA)
    lora_targets: str | tuple[str, ...] = key(
        AllOrSeveral(
            help="modules that get adapters: all-linear or names",
            item=Text(help="a module name"),
            whole="all-linear",
        ),
        "all-linear",
        owner=LORA,
    )
    lora_dropout: float = key(Fraction(help="dropout before the adapters", below_one=True), 0.0, owner=LORA)
    lora_dtype: str = choice("dtype of the adapters", names.DTYPES, names.DTYPE_SPELLINGS, default="fp32", owner=LORA)
    dora: bool = switch("adapters split into magnitude and direction (DoRA)", False, owner=LORA)
    quantization: str | None = maybe(
        "format of the frozen base", names.BASE_QUANTIZATION, names.BASE_QUANTIZATION_SPELLINGS
    )
    quantize_experts: bool | None = switch(
        "fused experts are quantized too (axolotl's quantize_moe_experts)", owner=QUANTIZED_BASE
    )
    kbit_preparation: bool | None = switch("norms and embeddings in fp32, as peft prepares them")
    zero_stage: int = key(Whole(help="ZeRO stage", minimum=0, maximum=3), 0, inside="zero.stage")
    reduce_bucket_size: int | None = whole("gradients reduced at a time, in values", owner=ZERO)
    overlap_comm: bool | None = switch("reductions beside the backward pass", owner=ZERO)
    contiguous_gradients: bool | None = switch("gradients are copied into one buffer", owner=ZERO)
    reduce_scatter: bool | None = switch("gradients are reduced to their owner only", owner=ZERO)
    sub_group_size: int | None = whole("values that the optimizer steps at a time", owner=ZERO_3)
    communication_data_type: str | None = dtype_name("dtype in which gradients are reduced", owner=ZERO_3)
    stage3_prefetch_bucket_size: int | None = whole("values gathered ahead by a module", minimum=0, owner=ZERO_3)
    stage3_param_persistence_threshold: int | None = whole("weights up to it stay whole", minimum=0, owner=ZERO_3)
    stage3_model_persistence_threshold: int | None = whole("most values that stay whole", minimum=0, owner=ZERO_3)
    stage3_max_live_parameters: int | None = whole("gathered values that end prefetching", minimum=0, owner=ZERO_3)
    stage3_max_reuse_distance: int | None = whole("weights used again so soon stay", minimum=0, owner=ZERO_3)
    zero_init: bool | None = switch("the model is made inside zero.Init (it is, unless told otherwise)", owner=ZERO_3)
    zero_hpz_partition_size: int = whole("ranks that share a second copy of the weights", 1, owner=ZERO_3)
    zero_quantized_weights: bool = switch("weights are gathered as 8 bit", False, owner=ZERO_3)
    fsdp: str = choice("fully sharded data parallel", names.FSDP, inside="fsdp.sharding_strategy")
    fsdp_version: int = key(Whole(help="FSDP 1 or 2", maximum=2), 2, owner=FSDP)
    fsdp_units: tuple[str, ...] = texts("what FSDP wraps: layer, module, root, or names of classes", owner=FSDP)
    cpu_ram_efficient_loading: bool | None = switch("it cuts quantized weights in host memory (accelerate)", owner=FSDP)
    reshard_after_forward: bool = switch("gathered weights are freed after the forward pass", True, owner=FSDP)
    tensor_parallel_size: int = whole("GPUs that share each layer", 1)
    sequence_parallel: bool = switch(
        "norms and dropout split along the sequence (Megatron)", False, owner=TENSOR_PARALLEL
    )
    pipeline_parallel_size: int = whole("pipeline stages", 1, inside="pipeline.parallel_size")
    pipeline_layers: tuple[int, ...] = key(
        Several(help="layers of each pipeline stage, where they are not shared out evenly", item=Whole(help="layers")),
        (),
        owner=PIPELINE_STAGES,
    )
    virtual_pipeline_parallel_size: int = whole("chunks of layers a stage holds", 1, owner=PIPELINE_STAGES)
    pipeline_schedule: str = choice(
        "order of forward and backward passes",
        names.PIPELINE_SCHEDULES,
        names.PIPELINE_SCHEDULE_SPELLINGS,
        owner=PIPELINE,
    )
    num_microbatches: int | None = whole("micro-batches in a pipeline step", owner=PIPELINE)
    context_parallel_size: int = whole("GPUs that share each sequence", 1)
    context_parallel_kind: str | None = maybe(
        "how they do: ring (keys and values go round) or ulysses (heads are exchanged); else the framework's own",
        names.CONTEXT_PARALLEL_KINDS,
        owner=CONTEXT_PARALLEL,
    )
    moe_overload_factor: float | None = key(
        Share(help="even shares of tokens that the fullest rank's experts get (a range up to 1.5)", optional=True),
        None,
        owner=EXPERT_PARALLEL,
    )
    moe_capacity_factor: float | None = key(
        Share(help="even shares of tokens that an expert takes; more are dropped", optional=True),
        None,
        owner=EXPERT_PARALLEL,
    )
    expert_parallel_size: int = whole("GPUs that share the experts", 1)
    expert_tensor_parallel_size: int | None = whole(
        "GPUs that share each expert (default: as tensor_parallel_size where expert_parallel_size is 1, else 1)"
    )
    distributed_optimizer: bool = switch("optimizer states sharded over data parallel (Megatron)", False)
    precision_aware_optimizer: bool | None = switch(
        "the optimizer works on narrow states and gradients", owner=MEGATRON
    )
    offload_optimizer: str = choice("where optimizer states live", names.OFFLOAD, inside="offload.optimizer")
    offload_optimizer_fraction: float = key(
        Fraction(help="share of the values that the offloaded optimizer steps on the host"), 1.0, owner=MEGATRON
    )
    offload_params: str = choice("where weights live", names.OFFLOAD, inside="offload.params")
    offload_activations: str = choice("where saved activations live", names.OFFLOAD, inside="offload.activations")
    offload_pin_memory: bool | None = switch("host memory is page-locked", owner=ZERO)
    offload_optimizer_buffer_count: int | None = whole(
        "buffers of a sub-group's states, on NVMe", minimum=0, owner=ZERO_3
    )
    offload_params_buffer_count: int | None = whole("buffers of weights, on NVMe", minimum=0, owner=ZERO_3)
    offload_params_buffer_size: int | None = whole("values of a buffer of weights, on NVMe", minimum=0, owner=ZERO_3)
    offload_params_max_in_cpu: int | None = whole("weights that stay in host memory, on NVMe", minimum=0, owner=ZERO_3)
    compile: bool = switch("torch.compile", False)
    compiled: tuple[str, ...] = key(
        Several(
            help="what is compiled, where it is not what the framework compiles (layers or model, loss)",
            item=choice_kind("a part", names.COMPILED),
        ),
        (),
        owner=COMPILE,
    )
    clip_grad_norm: bool = switch("gradients are clipped by their norm", True)
    gradient_release: bool = switch("the optimizer steps each weight in backward, and frees its gradient", False)
    set_to_none: bool = switch("zero_grad frees the gradients; off: they stay and are zeroed", True)
    eval_batch_size: int | None = whole("sequences in an evaluation pass between steps (default: micro_batch_size)")
    expandable_segments: bool = switch("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", False)
    trainable: tuple[str, ...] = texts("which parts train, by name")
    extra_models: tuple[str, ...] = texts("other models on the GPU (reference, rollout:vllm, …)")
    rollout_gpu_memory_utilization: float | None = key(
        Fraction(help="share of each card that a rollout engine on it takes", optional=True, above_zero=True),
        None,
        inside="rollout.gpu_memory_utilization",
    )
    rollout_sleep: bool = switch("the rollout engine sleeps while the policy trains", False, owner=ROLLOUT)

    @property
    def model_type(self) -> str:
        """The type of the model that the settings are resolved for; a scenario's own are for any."""
        return ""
