"""Weights, gradients, master copies and optimizer states that one rank holds, tensor by tensor.

Every tensor takes its bytes rounded up to 512, as torch's caching allocator hands them out. Frozen weights have
neither a gradient nor an optimizer state: only trained tensors are passed to the optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from vramwise.formats import dtype
from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import library_version
from vramwise.memo import of_model
from vramwise.models.blocks import Parameter
from vramwise.models.lengths import UNSTATED_LENGTH, stated_positions, text_config
from vramwise.models.model import Model
from vramwise.models.operations.attention import AnyRotary
from vramwise.models.type_facts import fact_value, has_fact
from vramwise.optimizers import TrainedTensor, is_paged, kept_bytes, step_transient_bytes
from vramwise.records import record
from vramwise.training.components import Component
from vramwise.training.layout.parallel import ALONE, Placement
from vramwise.training.model_states.trained import (
    OfStage,
    Trained,
    frozen_beside,
    of_stage,
    plain_width,
    rounded,
    stage_of,
    step_of,
    stepped_sizes,
    width,
)
from vramwise.training.recipe.fp8_weights import copy_bytes, runs_transformer_engine
from vramwise.training.recipe.framework_defaults import ADAPTERS
from vramwise.training.recipe.gradient_life import gradient_life
from vramwise.training.resolved import ResolvedTrain

if TYPE_CHECKING:
    from vramwise.formats import QuantFormat

_CACHED = 2  # cos and sin
_FP32_BYTES = 4


@record
class ModelStates:
    """Bytes of one rank's states.

    `buffers`: large tensors that modules register beside their parameters.
    `copies_8_bit`: of weights, with transposes and scales, beside the weights themselves.
    `flat_gradients`, `fp32_gradients`: the part of the gradients that this rank steps, in one piece (ZeRO), and in the
    master's dtype.
    `small_gradients`, `small_transient`: of gradients and step, in tensors that torch's allocator takes from its pool
    of small blocks. `released`: of the largest weight of a layer, of the head and of the embedding, its gradient and
    what a step needs.
    """

    weights: int
    frozen_weights: int
    buffers: int
    adapter_weights: int
    copies_8_bit: int
    gradients: int
    master: int
    optimizer: int
    paged_optimizer: int
    step_transient: int
    num_trainable: int
    num_trained_tensors: int
    gradient_numel: int
    flat_gradients: int
    fp32_gradients: int
    released: Mapping[int | str, tuple[int, int]]
    small_gradients: int
    small_transient: int

    def least(self) -> dict[Component, int]:
        """What is certain of components of which a moment holds as much as its sizes have it.

        Of gradients that go as they come the largest one: how many others are there beside it hangs on the operation.
        """
        return {Component.GRADIENTS: max(gradient for gradient, _ in self.released.values())} if self.released else {}


def quantizer(model: Model, train: ResolvedTrain) -> QuantFormat | None:
    """What quantizes the frozen base. Experts, linear layers before transformers 5, were replaced with the others."""
    if train.quantization is None:
        return None
    from vramwise.formats.quantization import quantization

    rule = quantization(train.quantization)
    if framework_of(train).quantizing.head:
        rule = replace(rule, skipped_parts=rule.skipped_parts - {"head"})
    if train.quantize_experts is not None:
        return replace(rule, quantizes_fused_experts=train.quantize_experts)
    from vramwise.training.recipe.expert_modules import has_expert_modules

    if has_expert_modules(train, model):
        return replace(rule, quantizes_fused_experts=True)
    return rule


def stored(
    parameter: Parameter, numel: int, train: ResolvedTrain, rule: QuantFormat | None, shards: int = 1
) -> tuple[int, int]:
    """Bytes of a rank's 1/`shards` of `numel` of a base weight's values, and of what stays whole on every rank.

    FSDP and ZeRO-3 cut parameters: of a weight quantized by bitsandbytes the packed values, but not its scales, which
    are attributes of `QuantState`.
    """
    if rule is not None and rule.quantizes(parameter.part, parameter.shape, parameter.is_linear):
        both = rule.bytes_for(parameter.shape) * numel // parameter.numel
        cut = numel * rule.bits // 8 if rule.layout.startswith("bnb-4bit") else both
        return -(-cut // shards), both - cut
    return -(-numel // shards) * plain_width(parameter, train), 0


def keeps_originals(train: ResolvedTrain) -> bool:
    """Whether a weight that trains beside adapters is a copy: peft's `modules_to_save` keep the frozen module as well.

    peft 0.21 utils/other.py ModulesToSaveWrapper: `original_module`, and a deep copy of it that trains.
    """
    return train.method in ADAPTERS and framework_of(train).quantizing.keeps_originals


def trained_numel(model: Model, train: ResolvedTrain, placement: Placement) -> int:
    """Values of the rank's stage that train, after tensor and expert parallelism, before data parallelism cuts them."""
    kinds = of_stage(model, train, placement).kinds
    return sum(placement.local_numel(base, tensor.numel) * count for tensor, base, count in kinds)


def reduced_numel(model: Model, train: ResolvedTrain, placement: Placement) -> int:
    """Of these the values whose gradients come, where each is reduced as it comes."""
    kinds = of_stage(model, train, placement).kinds
    return sum(placement.local_numel(base, t.numel) * count for t, base, count in kinds if t.grad_bytes)


@record
class _Held:
    """What a rank has for one trained tensor."""

    weights: int
    adapter_weights: int
    copies: int
    gradients: int
    master: int
    optimizer: int
    paged: int
    numel: int


def _held(tensor: TrainedTensor, base: Parameter, train: ResolvedTrain, placement: Placement) -> _Held:
    local = placement.local_numel(base, tensor.numel)
    held, is_base = rounded(placement.weight_numel(base, local) * tensor.param_bytes), tensor.name == base.name
    stepped = placement.stepped_numel(base, local)
    share = stepped / tensor.numel
    kept = kept_bytes(train.optimizer, tensor, fp32_embeddings=framework_of(train).trainer)
    states = sum(rounded(-(-int(nbytes * stepped) // tensor.numel) if share != 1 else nbytes) for nbytes in kept)
    paged = is_paged(train.optimizer, tensor)
    return _Held(
        weights=held if is_base else 0,
        adapter_weights=0 if is_base else held,
        copies=copy_bytes(base, local, train) if is_base else 0,
        gradients=rounded(placement.gradient_numel(base, local) * tensor.grad_bytes),
        master=rounded(stepped * master_bytes(train)) if train.master_dtype else 0,
        optimizer=0 if paged else states,
        paged=states if paged else 0,
        numel=local,
    )


def buffer_bytes(model: Model, train: ResolvedTrain, placement: Placement) -> list[int]:
    """Bytes of each large tensor that modules of a rank's stage register beside their parameters; nothing cuts them."""
    held = [one for one in model.buffers if placement.holds_layer(one.layer, first=True)]
    held = held[:1] if has_one_table(model, train) else held
    own = [rounded(prod(one.shape) * width(one.dtype or train.param_dtype)) for one in held]
    return own + [rounded(size) for size in rotary_table_bytes(model, train, placement)]


@of_model
def model_states(model: Model, train: ResolvedTrain, placement: Placement) -> ModelStates:
    """Bytes of weights, gradients, master weights and optimizer states of one rank (see the module's docstring).

    Every tensor is rounded as the allocator does. Raises UnknownNameError for an optimizer without a rule.
    """
    here = of_stage(model, train, placement)
    pairs = here.pairs
    counted = [(_held(tensor, base, train, placement), count) for tensor, base, count in here.kinds]
    numel_sum = sum(one.numel * count for one, count in counted)
    copies, frozen = sum(one.copies * count for one, count in counted), 0
    rule = quantizer(model, train)
    for p, count in frozen_beside(model, here, stage_of(placement), keeps_originals(train)):
        local = placement.local_numel(p, p.numel)
        frozen += rounded(sum(stored(p, local, train, rule, placement.weight_shards_of(p)))) * count
        copies += copy_bytes(p, local, train) * count
    transient, small_transient = step_of(here, train.optimizer, train.optimizer_impl)
    if pairs:
        at_once = placement.stepped_numel(pairs[0][1], numel_sum)
        if train.zero_stage == 3:
            at_once = min(at_once, _stepped_at_once(here, train, placement))
        if train.zero_stage > 0 and train.optimizer == "adamw":
            # A partition, or sub-group, is one flat tensor to torch's AdamW (DeepSpeed 0.19 runtime/zero
            # stage_1_and_2.py single_partition_of_fp32_groups, stage3.py fp32_partitioned_groups_flat).
            flat = replace(pairs[0][0], shape=(at_once,))
            transient = step_transient_bytes(train.optimizer, train.optimizer_impl, [flat])
        else:
            transient = transient * at_once // max(1, here.numel)
    return ModelStates(
        weights=sum(one.weights * count for one, count in counted), frozen_weights=frozen,
        buffers=sum(buffer_bytes(model, train, placement)),
        adapter_weights=sum(one.adapter_weights * count for one, count in counted), copies_8_bit=copies,
        gradients=sum(one.gradients * count for one, count in counted),
        master=sum(one.master * count for one, count in counted),
        optimizer=sum(one.optimizer * count for one, count in counted),
        paged_optimizer=sum(one.paged * count for one, count in counted), step_transient=transient,
        num_trainable=of_stage(model, train, ALONE).numel,
        num_trained_tensors=sum(tensor.grad_bytes > 0 for tensor, _ in pairs),
        gradient_numel=numel_sum, **_gradient_copies(here, train, placement),
        released=_released(pairs, train, placement) if gradient_life(train).released else {},
        small_gradients=here.small_gradients, small_transient=small_transient,
    )  # fmt: skip


def steps_narrow(train: ResolvedTrain) -> bool:
    """Whether Megatron's optimizer reads gradients and weights as they are, and keeps the master weights itself.

    That takes --use-precision-aware-optimizer, and products in 16 bits, delayed scaling or a narrow master (core 0.16
    OptimizerConfig `use_precision_aware_optimizer_no_fp8_or_ds_fp8`). Megatron-Bridge's 16-bit recipes carry a
    tensorwise fp8 recipe into that condition (training/mixed_precision.py) and so do not have it.
    """
    wide_recipe = runs_transformer_engine(train) and train.fp8_recipe != "delayed" and train.master_dtype == "fp32"
    return bool(train.precision_aware_optimizer) and not wide_recipe


def master_bytes(train: ResolvedTrain) -> int:
    """Bytes of a master weight's value: of fp32 the 16 bits that a bf16 weight lacks, where the optimizer steps narrow.

    (core 0.16 OptimizerConfig `store_param_remainders`.)
    """
    if steps_narrow(train) and (train.param_dtype, train.master_dtype) == ("bf16", "fp32"):
        return 2
    return width(train.master_dtype or "fp32")


def copies_gradients(train: ResolvedTrain) -> bool:
    """Whether Megatron's optimizer makes fp32 copies of 16-bit `main_grad`s, as it does unless it steps narrow.

    (core 0.16 optimizer/distrib_optimizer.py and optimizer.py, `_copy_model_grads_to_main_grads`.)
    """
    return width(train.grad_dtype) < 4 and train.master_dtype is not None and not steps_narrow(train)


def _gradient_copies(here: OfStage, train: ResolvedTrain, placement: Placement) -> dict[str, int]:
    """What a step makes of this rank's part of the gradients: one piece, and fp32.

    ZeRO does so (DeepSpeed 0.19 stage_1_and_2.py, stage3.py), stage 3 for a sub-group at a time.
    """
    numel = sum(
        placement.stepped_numel(base, placement.local_numel(base, t.numel)) * count for t, base, count in here.kinds
    )
    narrow, wide = width(train.grad_dtype), width(train.master_dtype or train.grad_dtype)
    if framework_of(train).gradients.main_buffer:
        return {"flat_gradients": 0, "fp32_gradients": rounded(numel * 4 if copies_gradients(train) else 0)}
    if not train.zero_stage or gradient_life(train).summed_in_fp32:
        return {"flat_gradients": 0, "fp32_gradients": 0}
    if train.zero_stage == 3:
        numel = _stepped_at_once(here, train, placement)
    return {"flat_gradients": rounded(numel * narrow), "fp32_gradients": rounded(numel * wide)}


def _stepped_at_once(here: OfStage, train: ResolvedTrain, placement: Placement) -> int:
    """Values that an optimizer steps at a time: its whole share, or under ZeRO-3 the largest sub-group of it."""
    from vramwise.training.recipe.zero import largest_sub_group, sub_group_numel

    sizes = stepped_sizes(here, placement)
    return largest_sub_group(sizes, sub_group_numel(train)) if train.zero_stage == 3 else sum(sizes)


def _released(pairs: Trained, train: ResolvedTrain, placement: Placement) -> dict[int | str, tuple[int, int]]:
    found: dict[int | str, tuple[int, int]] = {}
    for tensor, base in pairs:
        key = base.layer if base.layer is not None else "embedding" if base.part == "embedding" else "head"
        local = placement.local_numel(base, tensor.numel)
        step = step_transient_bytes(train.optimizer, train.optimizer_impl, [tensor], released=True)
        both = (
            rounded(placement.gradient_numel(base, local) * tensor.grad_bytes),
            rounded(step * placement.stepped_numel(base, local) // tensor.numel),
        )
        found[key] = max(found.get(key, (0, 0)), both, key=sum)
    return found


def has_one_table(model: Model, train: ResolvedTrain) -> bool:
    """Whether the layers share one table of sinusoids, where each registered its own before."""
    kind, version = model.config.model_type, library_version(train)
    return framework_of(train).classes == "as they are" and has_fact(
        "transformers", "one_sinusoid_table", kind, version
    )


def rotary_table_bytes(model: Model, train: ResolvedTrain, placement: Placement) -> list[int]:
    """Bytes of each table of the layers that a rank holds; empty where classes of that version hold none.

    positions × rotary columns × bytes, two a layer. They are made in torch's default dtype, which is that of the
    weights while a checkpoint is loaded, quantized or not, and FSDP casts buffers to the compute dtype; some classes
    keep fp32. Source: transformers 4.31.0 to 4.48.3 modeling_*.py register_buffer("cos_cached"). Not counted: a table
    that grows with a sequence beyond the positions of the config.
    """
    config = text_config(model)
    if framework_of(train).classes != "as they are":
        return _own_tables(model, train, placement)
    kept = fact_value("transformers", "rotary_buffers", config.model_type, library_version(train))
    if kept is None:
        return []
    narrowed = train.quantization is not None or train.fsdp != "none"
    each = dtype(kept or (train.compute_dtype if narrowed else train.param_dtype)).bytes_per_value
    positions = stated_positions(config) or UNSTATED_LENGTH
    widths = _rotary_widths(model, placement)
    return [int(positions * width * each) for width in widths for _ in range(_CACHED)]


def _own_tables(model: Model, train: ResolvedTrain, placement: Placement) -> list[int]:
    """Of a framework's own classes: as many as its record says, in fp32."""
    cache = framework_of(train).rotary_cache(train, model)
    if cache is None:
        return []
    positions = stated_positions(text_config(model)) or UNSTATED_LENGTH
    each = [positions * width * cache.columns * _FP32_BYTES for width in _rotary_widths(model, placement)]
    return each if cache.in_every_layer else each[:1]


def _rotary_widths(model: Model, placement: Placement) -> list[int]:
    """Rotary columns of every layer that a rank holds and that has some."""
    held = [block for block in model.layers() if placement.holds_layer(block.layer, first=True)]
    widths = (next((op.rotary_dim or op.outputs[0].width for op in b.operations(AnyRotary)), 0) for b in held)
    return [int(width) for width in widths if width]
