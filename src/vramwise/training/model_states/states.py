"""Weights, gradients, master copies and optimizer states that one rank holds, tensor by tensor.

Every tensor takes its bytes rounded up to 512, as torch's caching allocator hands them out. Frozen weights have
neither a gradient nor an optimizer state: only trained tensors are passed to the optimizer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from vramwise.formats import QuantFormat, dtype, quantization
from vramwise.frameworks import framework_of
from vramwise.models.allocator import ROUNDING, SMALL_SIZE
from vramwise.models.blocks import Parameter
from vramwise.models.model import Model
from vramwise.optimizers import TrainedTensor, is_paged, kept_bytes, step_transient_bytes
from vramwise.records import record
from vramwise.training.components import Component
from vramwise.training.layout.parallel import ALONE, Placement
from vramwise.training.model_states.rotary_tables import has_one_table, rotary_table_bytes
from vramwise.training.recipe.fp8_weights import copy_bytes, runs_transformer_engine, stored_dtype
from vramwise.training.recipe.framework_defaults import ADAPTERS, copied_dtype
from vramwise.training.recipe.gradient_life import gradient_life
from vramwise.training.recipe.settings import execution, narrowed_again
from vramwise.training.resolved import ResolvedTrain
from vramwise.units import round_up


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


def rounded(nbytes: int) -> int:
    """Bytes that the allocator counts for one tensor."""
    return round_up(nbytes, ROUNDING)


def width(name: str) -> int:
    """Bytes of one value of a dtype of at least 8 bits."""
    return int(dtype(name).bytes_per_value)


def quantizer(model: Model, train: ResolvedTrain) -> QuantFormat | None:
    """What quantizes the frozen base. Experts, linear layers before transformers 5, were replaced with the others."""
    if train.quantization is None:
        return None
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
    return -(-numel // shards) * _plain_width(parameter, train), 0


def _plain_width(parameter: Parameter, train: ResolvedTrain) -> int:
    """Bytes of a value that nothing quantizes: prepare_model_for_kbit_training (peft 0.21) casts 16 bits to fp32."""
    widened = train.kbit_preparation and parameter.part not in narrowed_again(train)
    return 4 if widened else width(stored_dtype(parameter, train))


def trained(
    name: str, shape: tuple[int, ...], part: str, *, is_linear: bool, param_bytes: int, train: ResolvedTrain,
    head_dim: int = 1,
) -> TrainedTensor:  # fmt: skip
    """A trained tensor under these settings."""
    grad, state = width(train.grad_dtype), width(train.optimizer_state_dtype)
    return TrainedTensor(name, shape, part, is_linear, param_bytes, grad, state, head_dim)


Trained = Sequence[tuple[TrainedTensor, Parameter]]


def trained_tensors(model: Model, train: ResolvedTrain) -> tuple[tuple[TrainedTensor, Parameter], ...]:
    """Every tensor that the optimizer steps, with the base parameter that decides where it lives."""
    return _trained_tensors(model, _without_layout(train))


_LAYOUT: Mapping[str, object] = {
    key: ResolvedTrain.__dataclass_fields__[key].default
    for key in (
        "checkpointing", "recompute", "tensor_parallel_size", "sequence_parallel", "pipeline_parallel_size",
        "virtual_pipeline_parallel_size", "pipeline_layers", "pipeline_schedule", "num_microbatches",
        "context_parallel_size", "expert_parallel_size",
    )
}  # fmt: skip


@lru_cache(maxsize=1024)
def _without_layout(train: ResolvedTrain) -> ResolvedTrain:
    """The settings without those that say how layers lie and what is computed again: what trains never sees them."""
    changes = {key: plain for key, plain in _LAYOUT.items() if getattr(train, key) != plain}
    return train.replace(**changes) if changes else train


@lru_cache(maxsize=512)
def _trained_tensors(model: Model, train: ResolvedTrain) -> tuple[tuple[TrainedTensor, Parameter], ...]:
    trains, copied = execution(train, model).trains, copied_dtype(train)
    head_dim = 1
    if train.optimizer == "adam-mini":
        # adam_mini 1.1.1 adam_mini.py: head_numel = dim · dim // n_heads, whatever the model's own head size is
        head_dim = model.hidden_size // (model.config.size("num_attention_heads", default=0) or model.hidden_size)

    def of_base(p: Parameter) -> TrainedTensor:
        size = _plain_width(p, train) if copied is None else width(copied)
        made = trained(p.name, p.shape, p.part, is_linear=p.is_linear, param_bytes=size, train=train, head_dim=head_dim)
        if copied is not None or train.method in ("lora", "qlora"):  # `grad_dtype` is that of the adapters
            made = replace(made, grad_bytes=size, state_bytes=size)
        return made

    found = [(of_base(p), p) for p in model.parameters if trains(p.name) and not p.frozen]
    if train.method in ("lora", "qlora"):
        from vramwise.training.recipe.adapters import adapters_of

        for adapter in adapters_of(model, train):
            found += [
                (trained(f"{adapter.module}.lora", shape, adapter.base.part, is_linear=True,
                         param_bytes=width(train.lora_dtype), train=train), adapter.base)
                for shape in adapter.shapes
            ]  # fmt: skip
    return tuple(found)


def keeps_originals(train: ResolvedTrain) -> bool:
    """Whether a weight that trains beside adapters is a copy: peft's `modules_to_save` keep the frozen module as well.

    peft 0.21 utils/other.py ModulesToSaveWrapper: `original_module`, and a deep copy of it that trains.
    """
    return train.method in ADAPTERS and framework_of(train).quantizing.keeps_originals


@record(eq=False)
class _OfStage:
    """The trained tensors of a pipeline stage; `kinds`: one of those that differ by their layers alone, and how many.

    `numel`: of all; `small_gradients`: of those whose gradient is a small block; `transient`, `small_transient`: what
    a step of all takes, and of those with small states.
    """

    pairs: tuple[tuple[TrainedTensor, Parameter], ...]
    kinds: tuple[tuple[TrainedTensor, Parameter, int], ...]
    names: frozenset[str]
    numel: int
    small_gradients: int
    transient: int
    small_transient: int


def _of_stage(model: Model, train: ResolvedTrain, placement: Placement) -> _OfStage:
    """What a rank's stage trains, whatever it is divided over."""
    stage = Placement(
        stages=placement.stages, stage=placement.stage, first_layer=placement.first_layer,
        last_layer=placement.last_layer,
    ) if placement.stages > 1 else ALONE  # fmt: skip
    return _on_stage(model, _without_layout(train), stage)


@lru_cache(maxsize=1024)
def _on_stage(model: Model, train: ResolvedTrain, stage: Placement) -> _OfStage:
    pairs = tuple((tensor, base) for tensor, base in _trained_tensors(model, train) if stage.holds(base))
    first: dict[tuple[object, ...], tuple[TrainedTensor, Parameter]] = {}
    counts: Counter[tuple[object, ...]] = Counter()
    for tensor, base in pairs:
        kind = (
            tensor.name.replace(f".{base.layer}.", ".."), tensor.shape, tensor.part, tensor.is_linear,
            tensor.param_bytes, tensor.head_dim, tensor.name == base.name, base.shape, base.shard, base.part,
        )  # fmt: skip
        first.setdefault(kind, (tensor, base))
        counts[kind] += 1
    kinds = tuple((*first[kind], count) for kind, count in counts.items())
    stepping = [tensor for tensor, _ in pairs]
    small = [(rounded(tensor.numel * tensor.grad_bytes), count) for tensor, _, count in kinds]
    return _OfStage(
        pairs, kinds, frozenset(base.name for tensor, base in pairs if tensor.name == base.name),
        numel=sum(tensor.numel * count for tensor, _, count in kinds),
        small_gradients=sum(size * count for size, count in small if _is_small(size)),
        transient=step_transient_bytes(train.optimizer, train.optimizer_impl, stepping),
        small_transient=step_transient_bytes(
            train.optimizer, train.optimizer_impl, [t for t in stepping if _is_small(t.numel * t.state_bytes)]
        ),
    )  # fmt: skip


def trained_numel(model: Model, train: ResolvedTrain, placement: Placement) -> int:
    """Values of the rank's stage that train, after tensor and expert parallelism."""
    kinds = _of_stage(model, train, placement).kinds
    return sum(placement.local_numel(base, tensor.numel) * count for tensor, base, count in kinds)


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
    """Of each large tensor that modules of a rank's stage register beside their parameters; nothing cuts them."""
    held = [one for one in model.buffers if placement.holds_layer(one.layer, first=True)]
    held = held[:1] if has_one_table(model, train) else held
    own = [rounded(prod(one.shape) * width(one.dtype or train.param_dtype)) for one in held]
    return own + [rounded(size) for size in rotary_table_bytes(model, train, placement)]


@lru_cache(maxsize=4096)
def model_states(model: Model, train: ResolvedTrain, placement: Placement) -> ModelStates:
    """The states of one rank (see the module's docstring)."""
    here = _of_stage(model, train, placement)
    pairs, names = here.pairs, here.names
    counted = [(_held(tensor, base, train, placement), count) for tensor, base, count in here.kinds]
    numel_sum = sum(one.numel * count for one, count in counted)
    copies, frozen = sum(one.copies * count for one, count in counted), 0
    rule, seen = quantizer(model, train), set[str]()
    for p in model.parameters:
        storage = p.original or p.name
        if (p.name not in names or keeps_originals(train)) and storage not in seen and placement.holds(p):
            seen.add(storage)
            local = placement.local_numel(p, p.numel)
            frozen += rounded(sum(stored(p, local, train, rule, placement.weight_shards_of(p))))
            copies += copy_bytes(p, local, train)
    transient = here.transient
    if pairs:
        at_once = placement.stepped_numel(pairs[0][1], numel_sum)
        if train.zero_stage == 3:
            at_once = min(at_once, _stepped_at_once(pairs, train, placement))
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
        num_trainable=_of_stage(model, train, ALONE).numel,
        num_trained_tensors=len(pairs), gradient_numel=numel_sum, **_gradient_copies(here, train, placement),
        released=_released(pairs, train, placement) if gradient_life(train).released else {},
        small_gradients=here.small_gradients, small_transient=here.small_transient,
    )  # fmt: skip


def _is_small(nbytes: int) -> bool:
    return nbytes <= SMALL_SIZE


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


def _gradient_copies(here: _OfStage, train: ResolvedTrain, placement: Placement) -> dict[str, int]:
    """What a step makes of this rank's part of the gradients: one piece, and fp32.

    ZeRO does so (DeepSpeed 0.19 stage_1_and_2.py, stage3.py), stage 3 for a sub-group at a time. Megatron's optimizer
    makes fp32 copies of 16-bit `main_grad`s unless it steps narrow (core 0.16 optimizer/distrib_optimizer.py and
    optimizer.py, `_copy_model_grads_to_main_grads`).
    """
    numel = sum(
        placement.stepped_numel(base, placement.local_numel(base, t.numel)) * count for t, base, count in here.kinds
    )
    narrow, wide = width(train.grad_dtype), width(train.master_dtype or train.grad_dtype)
    if framework_of(train).gradients.main_buffer:
        copied = numel * 4 if narrow < 4 and train.master_dtype is not None and not steps_narrow(train) else 0
        return {"flat_gradients": 0, "fp32_gradients": rounded(copied)}
    if not train.zero_stage or gradient_life(train).summed_in_fp32:
        return {"flat_gradients": 0, "fp32_gradients": 0}
    if train.zero_stage == 3:
        numel = _stepped_at_once(here.pairs, train, placement)
    return {"flat_gradients": rounded(numel * narrow), "fp32_gradients": rounded(numel * wide)}


def _stepped_at_once(pairs: Trained, train: ResolvedTrain, placement: Placement) -> int:
    """Values that an optimizer steps at a time: its whole share, or under ZeRO-3 the largest sub-group of it."""
    from vramwise.training.recipe.zero import largest_sub_group, sub_group_numel

    sizes = [placement.stepped_numel(base, placement.local_numel(base, t.numel)) for t, base in pairs]
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
