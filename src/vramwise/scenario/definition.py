"""The one definition of a scenario: keys, defaults, bounds, accepted names and help.

Reading files, checking values, JSON Schema and command-line flags are all generated from the fields below and in
inference.py. The first name of a choice is its default. A default of None means that the engine, the framework or
the model decides; the estimate fills it in and writes it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vramwise.scenario import names
from vramwise.scenario.fields import choice, dtype_name, key, maybe, size, switch, text, texts, whole
from vramwise.scenario.inference import OWNERS, UNCOUNTED_ENGINES, GenerateSettings, ServeSettings, engines_of
from vramwise.scenario.settings import Settings, kinds_of
from vramwise.scenario.values import Fraction, Kind, ModelReference, Several, Share, Text, Whole, choice_kind

__all__ = [
    "DEFAULTS",
    "KINDS",
    "OWNERS",
    "TABLES",
    "UNCOUNTED_ENGINES",
    "GenerateSettings",
    "Scenario",
    "ServeSettings",
    "Settings",
    "TrainSettings",
    "engines_of",
    "table_of",
]


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
    serve: ServeSettings = ServeSettings()  # noqa: RUF009 - frozen
    generate: GenerateSettings = GenerateSettings()  # noqa: RUF009
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

KINDS: dict[type[Settings], Mapping[str, Kind]] = {
    cls: kinds_of(cls) for cls in (Scenario, TrainSettings, ServeSettings, GenerateSettings)
}
"""The kind of every key, by table."""

DEFAULTS: dict[type[Settings], dict[str, Any]] = {
    cls: {key: cls.__dataclass_fields__[key].default for key in kinds} for cls, kinds in KINDS.items()
}
"""The default of every key, by table."""


def table_of(task: str) -> str:
    """The name of the task's table: its own, and `serve` for `load`."""
    return "serve" if task == "load" else task
