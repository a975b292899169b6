"""What a scenario leaves open, filled in as its framework would."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar, cast

from vramwise.errors import ScenarioError
from vramwise.formats import dtype
from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import names
from vramwise.memo import Memo
from vramwise.models.execution import Execution, Lora
from vramwise.models.lengths import model_length
from vramwise.models.model import Model
from vramwise.scenario import Scenario, TrainSettings
from vramwise.scenario.names import FP8_RECIPES
from vramwise.training.layout.parallel import cuts_weights
from vramwise.training.recipe.attention import (
    KEEPS_NO_SCORES,
    RUNS_SDPA,
    attention_of,
    joins_rows,
    repeats_heads_for_flash,
    separates_documents,
    types_gaining_sdpa,
    with_masks,
)  # fmt: skip
from vramwise.training.recipe.fp8_weights import (
    default_recipe,
    is_8_bit,
    keeps_transposes,
    products_in,
    runs_transformer_engine,
)  # fmt: skip
from vramwise.training.recipe.framework_defaults import (
    copied_dtype,
    kernel_names,
    kernels_of,
    with_framework_defaults,
)
from vramwise.training.recipe.gradient_life import (
    reentrant,
    wants_gradients_of_inputs,
    wants_gradients_of_patches,
)
from vramwise.training.recipe.images import images_of
from vramwise.training.recipe.lengths import has_spread
from vramwise.training.recipe.precision import DTYPES, on_its_card, weights_dtype
from vramwise.training.resolved import ResolvedTrain

if TYPE_CHECKING:
    from vramwise.hardware import Gpu

LONGEST_DEFAULT_SEQUENCE = 2048

# peft 0.5 and 0.21 utils/other.py prepare_model_for_kbit_training: nothing becomes fp32 beside such weights.
PREPARED_AS_THEY_ARE = ("aqlm", "eetq", "gptq", "hqq")
COMPUTE_ADAPTERS = frozenset({"fms", "unsloth"})
"""Kernel libraries with adapters of their own."""
NARROWED_BY_TRL = frozenset({"embedding", "head"})

Settings = TypeVar("Settings", bound=TrainSettings)


def resolved(scenario: Scenario, model: Model, gpu: Gpu | None = None) -> ResolvedTrain:
    """The train table with every open setting decided; raises `ScenarioError` for what contradicts itself."""
    asked = on_its_card(scenario, model)
    if asked is not scenario.train:
        with suppress(ScenarioError):  # what the framework does not take in fp16 stays as it is
            return _resolved(asked, scenario.num_gpus, model, gpu)
    return _resolved(scenario.train, scenario.num_gpus, model, gpu)


def _resolved(asked: TrainSettings, num_gpus: int, model: Model, gpu: Gpu | None) -> ResolvedTrain:
    train = _quantized_experts(with_framework_defaults(asked, model, num_gpus, weights_dtype), model)
    attention = attention_of(asked, train, model)
    train = train if attention == train.attention else train.replace(attention=attention)
    decided = _decided(train, model).replace(model_type=str(model.config.model_type))
    if decided.loss == "fused-linear":
        decided = decided.replace(logits_below=framework_of(train).loss.logits_below(asked, model))
        decided = decided.at_tokens(decided.micro_batch_size * decided.sequence_length)
    decided = _with_fp8(decided, gpu) if runs_transformer_engine(decided) else decided
    if not decided.expandable_segments:
        return decided
    from vramwise.training.recipe.growing_segments import with_segments

    return with_segments(decided, gpu)


def _with_fp8(train: ResolvedTrain, gpu: Gpu | None) -> ResolvedTrain:
    """Recipe and copies of 8-bit weights, by framework and GPU."""
    capability = gpu.compute_capability if gpu is not None else None
    recipe = train.fp8_recipe or framework_of(train).casts.fp8_recipe or default_recipe(capability)
    if recipe == "rowwise":
        expected = ", ".join(name for name in FP8_RECIPES if name != recipe)
        raise ScenarioError("train.fp8_recipe", f"rowwise scales are torchao's alone; expected {expected}")
    transposes = train.fp8_transposes
    if transposes is None:
        transposes = keeps_transposes(recipe, capability)
    return train.replace(fp8_recipe=recipe, fp8_transposes=transposes)


def structural(train: Settings) -> Settings:
    """The same settings with sizes taken out: one object for scenarios that run the same operations, so that whatever
    was worked out for it is found without a look at a hundred settings."""
    accumulates = 1 if train.gradient_accumulation_steps == 1 else 2
    made = train.replace(micro_batch_size=1, sequence_length=1, gradient_accumulation_steps=accumulates)
    return cast(Settings, _structures.get((made, made.explicit), lambda: made))


_structures: Memo[tuple[TrainSettings, frozenset[str]], TrainSettings] = Memo(1024)


_BESIDE_THE_OPERATIONS: Mapping[str, object] = {
    key: ResolvedTrain.__dataclass_fields__[key].default
    for key in (
        "optimizer_impl", "offload_optimizer", "offload_optimizer_fraction", "offload_params", "clip_grad_norm",
        "num_microbatches",
        "pipeline_schedule", "eval_batch_size", "expandable_segments", "distributed_optimizer", "reduce_bucket_size",
        "overlap_comm", "contiguous_gradients", "reduce_scatter", "sub_group_size", "stage3_prefetch_bucket_size",
        "stage3_param_persistence_threshold", "stage3_model_persistence_threshold", "stage3_max_live_parameters",
        "stage3_max_reuse_distance", "zero_init",
    )
}  # fmt: skip
_RELEASING = "lomo"


@lru_cache(maxsize=1024)
def of_operations(train: ResolvedTrain) -> ResolvedTrain:
    """The same settings without those that change no operation of a micro-batch: equal for those that run the same.

    What is worked out with these never sees the others.
    """
    changes = {key: plain for key, plain in _BESIDE_THE_OPERATIONS.items() if getattr(train, key) != plain}
    if train.optimizer not in ("adamw", _RELEASING):
        changes["optimizer"] = "adamw"
    if train.pipeline_parallel_size > 1 and not any(name.startswith("block:") for name in train.recompute):
        changes |= {"pipeline_parallel_size": 1, "virtual_pipeline_parallel_size": 1, "pipeline_layers": ()}
    return train.replace(**changes) if changes else train


def _decided(train: TrainSettings, model: Model) -> ResolvedTrain:
    method, precision = train.method, train.precision
    params, grads, master, states, compute = DTYPES[precision]
    framework = framework_of(train)
    if precision == "fp8-mixed" and framework.casts.fp8_weights is not None:
        params, grads, master, states, compute = DTYPES["bf16-master"]
        params = framework.casts.fp8_weights
    if precision in ("bf16-mixed", "fp16-mixed") and _loads_narrow(train):
        params = compute
    params = train.param_dtype or params
    if train.param_dtype and precision in ("bf16", "fp16"):
        compute = train.compute_dtype or compute
    if method in ("lora", "qlora"):
        # DeepSpeed and Megatron step fp32 copies of adapters in 16 bit too.
        narrow = precision.endswith("-master") and dtype(train.lora_dtype).bytes_per_value < 4
        grads = train.lora_dtype
        master, states = ("fp32", "fp32") if narrow else (None, train.lora_dtype)
    elif train.param_dtype and master is None and not is_8_bit(train.param_dtype):
        grads, states = params, params
    if framework.gradients.main_buffer and precision in ("bf16-master", "fp8-mixed"):
        grads = "fp32"
    copies = train.zero_stage in (1, 2) or (train.zero_stage == 3 and train.offload_optimizer != "none")
    if copies and params == "fp32" and method == "full":
        master = (
            "fp32"  # DeepSpeed 0.19: the partition is a clone of fp32 weights too, but what stays on the GPU in stage 3
        )
    quantization = train.quantization or ("nf4" if method == "qlora" else None)
    if method == "full" and train.quantization:
        raise ScenarioError("train.quantization", f'"{train.quantization}" weights cannot train; use method = qlora')
    return ResolvedTrain.of(
        train,
        sequence_length=_longest_batch(train, model),
        reshard_after_forward=train.reshard_after_forward and train.fsdp != "shard-grad-op",
        param_dtype=params,
        grad_dtype=train.grad_dtype or grads,
        master_dtype=train.master_dtype or master,
        optimizer_state_dtype=train.optimizer_state_dtype or states,
        compute_dtype=products_in(train, compute),
        context_parallel_kind=train.context_parallel_kind or _context_parallel_kind(train, model),
        expert_tensor_parallel_size=train.expert_tensor_parallel_size
        or (train.tensor_parallel_size if train.expert_parallel_size == 1 else 1),
        quantization=quantization,
        padding_free=joins_rows(train),
        document_mask=separates_documents(train),
        kbit_preparation=_is_prepared(train, model, quantization),
        sequence_parallel=train.sequence_parallel
        or (framework.sharding.sequence_with_tensors and train.tensor_parallel_size > 1),
    )


def _loads_narrow(train: TrainSettings) -> bool:
    """Whether frozen weights are as wide as what is computed: beside 4-bit ones wherever they are loaded (transformers
    4.57 quantizers/quantizer_bnb_4bit.py `update_dtype`)."""
    narrow = framework_of(train).casts.loads_narrow and train.fsdp == "none"
    return train.method == "qlora" or (train.method == "lora" and narrow)


def _context_parallel_kind(train: TrainSettings, model: Model) -> str | None:
    """The framework's own; heads that the ranks do not divide go round in a ring (ms-swift 4.6)."""
    if train.context_parallel_size == 1:
        return None
    shares_out = model.config.size("num_attention_heads", default=0) % train.context_parallel_size == 0
    return framework_of(train).sharding.context_parallel_kind if shares_out else "ring"


def _longest_batch(train: TrainSettings, model: Model) -> int:
    """Tokens of the longest row: the limit, or the longest sample where batches are padded to theirs."""
    limit = train.sequence_length or min(model_length(model), LONGEST_DEFAULT_SEQUENCE)
    samples = train.sample_lengths
    if not samples:
        return limit
    key = "train.sample_lengths"
    if {"fixed"} < set(samples) or ("fixed" not in samples and "maximum" not in samples):
        raise ScenarioError(key, "expected fixed=N, or maximum=N with a mean=N that is no larger")
    mean, longest = samples.get("mean", 0), samples.get("maximum", samples.get("mean", 0))
    if mean > longest:
        raise ScenarioError(
            key, f"the mean, {mean:,}, is above the maximum, {longest:,}: lower the one or raise the other"
        )
    return min(limit, samples.get("fixed") or samples["maximum"]) if pads(train) else limit


def _quantized_experts(train: TrainSettings, model: Model) -> TrainSettings:
    """Whether experts that are one parameter are quantized in a QLoRA, where the framework sees to that."""
    formats = framework_of(train).quantizing.experts_in
    if not formats or train.method != "qlora" or "quantize_experts" in train.explicit:
        return train
    if not has_fused_experts(train, model):
        return train
    return train.replace(quantize_experts=(train.quantization or "nf4").startswith(formats))


def has_fused_experts(train: TrainSettings, model: Model) -> bool:
    return model.has_fused_experts and not _has_expert_modules(train, model)


def _has_expert_modules(train: TrainSettings, model: Model) -> bool:
    if not model.has_experts:
        return False
    from vramwise.training.recipe.expert_modules import has_expert_modules

    return has_expert_modules(train, model)


def keeps_outputs(train: TrainSettings) -> bool:
    """Whether a variable of the loop names the logits, and so their graph, until the next ones are there.

    Workers of reinforcement learning make log-probabilities of them in a function that returns those alone (verl 0.7
    workers/actor/dp_actor.py `_forward_micro_batch`).
    """
    if train.keeps_outputs is not None:
        return train.keeps_outputs
    return framework_of(train).names_logits(train) and not train.extra_models and not asks_for_logits(train)


def names_logits_of_last_pass(train: ResolvedTrain) -> bool:
    """Whether a forward pass of the longest samples finds a variable of the loop naming the logits of one as long."""
    over_steps = not train.step_function or train.gradient_accumulation_steps > 1
    return keeps_outputs(train) and over_steps and not longest_comes_first(train)


def loss_in_forward(train: TrainSettings) -> bool:
    """Whether the model's own forward works out the loss (transformers' classes, of labels in the batch)."""
    return framework_of(train).classes != "own" and not asks_for_logits(train)


def asks_for_logits(train: TrainSettings) -> bool:
    """Whether the trainer works the loss out of the logits that the model has returned, behind its forward pass."""
    return train.loss == "preference"


def pads(train: TrainSettings) -> bool:
    """Whether a batch is padded to its longest sample."""
    return not train.packing and framework_of(train).batches != "full"


def lengths_differ(train: TrainSettings) -> bool:
    """Whether padded batches differ in length from step to step."""
    return pads(train) and "fixed" not in (train.sample_lengths or {})


def lengths_vary(train: ResolvedTrain) -> bool:
    """Whether micro-batches have any length up to `sequence_length`, which only cuts or drops samples: conversations,
    and what is said to differ."""
    any_length = framework_of(train).batches == "conversations" or has_spread(train.sample_lengths)
    return any_length and lengths_differ(train) and not samples_completions(train)


def longest_comes_first(train: ResolvedTrain) -> bool:
    """Whether the longest sample is in a micro-batch that no earlier one left gradients for."""
    return framework_of(train).longest_first(train)


def samples_completions(train: ResolvedTrain) -> bool:
    """Whether a rollout engine makes the sequences: `sequence_length` is the longest they can get."""
    return any(name.startswith("rollout") for name in train.extra_models)


def autocasts(train: ResolvedTrain) -> bool:
    """Whether Trainer runs the model under autocast; over a quantized base it is what `bf16` and `fp16` can mean."""
    runs = framework_of(train).casts.autocast
    over_quantized = train.method == "qlora" and runs == "quantized"
    on_16_bit = (over_quantized or runs == "16-bit") and train.precision in ("bf16", "fp16")
    return runs != "never" and (train.precision.endswith("-mixed") or on_16_bit)


def sharded(train: ResolvedTrain) -> bool:
    """Whether some weights live on other ranks between their uses."""
    return cuts_weights(train) or train.zero_stage == 3


def narrowed_again(train: ResolvedTrain) -> frozenset[str]:
    """Parts that are back in 16 bits after k-bit preparation: embedding and output layer by trl's SFTTrainer.

    trl 0.13 trainer/utils.py peft_module_casting_to_bf16; weights that are sharded are left alone.
    """
    if not train.kbit_preparation or sharded(train):
        return frozenset()
    own = framework_of(train).quantizing.narrowed_again
    return frozenset(own) if own else NARROWED_BY_TRL if names(train, "trl") else frozenset()


def _is_prepared(train: TrainSettings, model: Model, quantization: str | None) -> bool:
    """Whether peft's preparation of a k-bit base runs and widens anything."""
    if not train.kbit_preparation or (quantization or "").startswith(PREPARED_AS_THEY_ARE):
        return False
    left_out = train.quantize_experts and has_fused_experts(train, model)
    return framework_of(train).quantizing.prepares_quantized_experts or not left_out


def frozen_units_keep_inputs(train: ResolvedTrain) -> bool:
    """Whether FSDP 1 keeps inputs of checkpointed frozen layers: peft's policy wraps adapters in units of their own."""
    return train.method in ("lora", "qlora") and train.fsdp != "none" and train.fsdp_version == 1 and reentrant(train)


@lru_cache(maxsize=512)
def execution(train: ResolvedTrain, model: Model) -> Execution:
    """How the forward pass runs under these (resolved) settings. Raises ScenarioError."""
    framework = framework_of(train)
    params, autocast = train.param_dtype, None
    if train.compute_dtype != params or train.precision.endswith("-mixed") or autocasts(train):
        if framework.casts.autocast == "never":
            params = train.compute_dtype
        else:
            autocast = train.compute_dtype
            if sharded(train):  # the gathered weights are in the compute dtype already (accelerate's FSDP policy)
                params = train.compute_dtype
    if is_8_bit(params):  # what is stored in 8 bits is read in the dtype that is computed in
        params = train.compute_dtype
    if train.kbit_preparation:
        params = "fp32"
    trainable: tuple[str, ...] | None = train.trainable or None
    lora = None
    if train.method in ("lora", "qlora"):
        # Fused adapters compute in the base's dtype: their input is not cast.
        from vramwise.training.recipe.adapters import peft_targets, target_paths

        fused = not COMPUTE_ADAPTERS.isdisjoint(kernel_names(train))
        dtype = params if fused else train.lora_dtype
        lora = Lora(
            train.lora_rank, target_paths(model, peft_targets(model, train)), train.lora_dropout, dtype, train.dora
        )
    elif train.method == "full":
        trainable = trainable or None
    elif trainable is None:
        raise ScenarioError("train.trainable", "method = freeze needs the names of the parts that train")
    on_transformers = train.attention == "flash" and framework.trainer and framework.classes == "as they are"
    attention = "sdpa" if train.attention in KEEPS_NO_SCORES | RUNS_SDPA else train.attention
    backend = "flash" if train.attention in KEEPS_NO_SCORES else "auto"
    found = Execution(
        param_dtype=params,
        autocast=autocast,
        attention=attention,  # type: ignore[arg-type]
        trainable=trainable if lora is None else (train.trainable or ()),
        lora=lora,
        sdpa_backend=backend,
        quantized_compute=train.compute_dtype if train.quantization is not None else None,
        narrow_parts=narrowed_again(train),
        copied_dtype=copied_dtype(train),
        expert_modules=_has_expert_modules(train, model),
        images=images_of(train, model),
        types_gaining_sdpa=types_gaining_sdpa(model, train),
        flash_repeats_heads=on_transformers and repeats_heads_for_flash(model, train),
        inputs_require_grad=wants_gradients_of_inputs(train, stacks=2 if model.head == "seq2seq-lm" else 1),
        patches_require_grad=wants_gradients_of_patches(train, model.head),
        checkpoints=framework.trainer and train.checkpointing == "full",
        kernels=kernels_of(train, model),
    )
    return with_masks(found, train, model)
