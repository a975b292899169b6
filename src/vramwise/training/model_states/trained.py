"""The tensors that an optimizer steps, and those that stay frozen beside them, by what they have in common.

What is told of one layer's tensor holds for those of all like it, so that a model of a hundred layers takes no longer
than one of ten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from vramwise.formats import dtype
from vramwise.frameworks import framework_of
from vramwise.memo import Memo
from vramwise.models.allocator import ROUNDING, SMALL_SIZE
from vramwise.models.blocks import Parameter
from vramwise.models.execution import Execution
from vramwise.models.model import Model
from vramwise.optimizers import TrainedTensor, step_transient_bytes
from vramwise.records import record
from vramwise.training.layout.parallel import ALONE, Placement
from vramwise.training.recipe.fp8_weights import stored_dtype
from vramwise.training.recipe.framework_defaults import copied_dtype
from vramwise.training.recipe.settings import execution, narrowed_again
from vramwise.training.resolved import ResolvedTrain
from vramwise.units import round_up

if TYPE_CHECKING:
    from vramwise.training.recipe.adapters import Adapter


def rounded(nbytes: int) -> int:
    """Bytes that torch's caching allocator counts for one tensor: whole blocks of 512 (`ROUNDING`)."""
    return round_up(nbytes, ROUNDING)


def width(name: str) -> int:
    """Bytes of one value of a dtype of at least 8 bits."""
    return int(dtype(name).bytes_per_value)


def plain_width(parameter: Parameter, train: ResolvedTrain) -> int:
    """Bytes of a value that nothing quantizes: prepare_model_for_kbit_training (peft 0.21) casts 16 bits to fp32."""
    widened = train.kbit_preparation and parameter.part not in narrowed_again(train)
    return 4 if widened else width(stored_dtype(parameter, train))


Trained = Sequence[tuple[TrainedTensor, Parameter]]


@record(eq=False)
class _All:
    """Every tensor that trains, with the base parameter that decides where it lives; one object for equal ones."""

    pairs: tuple[tuple[TrainedTensor, Parameter], ...]


def trained_tensors(model: Model, train: ResolvedTrain) -> tuple[tuple[TrainedTensor, Parameter], ...]:
    """Every tensor that the optimizer steps, with the base parameter that decides where it lives."""
    return _all_trained(model, _without_layout(train)).pairs


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
def _all_trained(model: Model, train: ResolvedTrain) -> _All:
    """Kept by what it hangs on: optimizers, losses and offloading leave most of it as it is."""
    runs, copied = execution(train, model), copied_dtype(train)
    head_dim = 1
    if train.optimizer == "adam-mini":
        # adam_mini 1.1.1 adam_mini.py: head_numel = dim · dim // n_heads, whatever the model's own head size is
        head_dim = model.hidden_size // (model.config.size("num_attention_heads", default=0) or model.hidden_size)
    grad, state = width(train.grad_dtype), width(train.optimizer_state_dtype)
    adapts = train.method in ("lora", "qlora")
    widths = tuple(plain_width(p, train) if copied is None else width(copied) for p in alike(model).firsts)
    asked = _Asked(
        runs.trainable, runs.lora is None, widths, None if copied is not None or adapts else (grad, state), head_dim,
        unreached(model, train),
    )  # fmt: skip
    if not adapts:
        return _known.get((model, asked), lambda: _All(tuple(_of_base(model, runs, asked))))
    from vramwise.training.recipe.adapters import adapters_of

    added = adapters_of(model, train)
    beside = grad, state, width(train.lora_dtype)
    key = model, asked, added, beside
    of_added = _of_adapters(added, *beside, asked.unreached)
    return _known.get(key, lambda: _All((*_of_base(model, runs, asked), *of_added)))


def unreached(model: Model, train: ResolvedTrain) -> frozenset[str]:
    """What trains and gets no gradient, and so no state, where each tensor has a gradient of its own.

    All that wants one is in one piece with others in ZeRO's partitions and FSDP 1's flat parameters, whose gradients
    are zeros there (torch 2.13 fsdp/_flat_param.py `_reset_is_grad_none`; DeepSpeed 0.19 stage_1_and_2.py
    `get_flat_partition`), in Megatron's buffers and in the copies of bf16_optimizer.py. FSDP 2 reduces those that came
    (fully_shard/_fsdp_param_group.py `post_backward`). A framework's own classes may train what transformers' do not.
    """
    rules = framework_of(train)
    in_one = train.zero_stage or train.master_dtype or (train.fsdp != "none" and train.fsdp_version == 1)
    if in_one or rules.gradients.main_buffer or rules.classes == "own":
        return frozenset()
    return model.without_gradient


@record
class _Asked:
    """What tensors of the base that train hang on; `widths`: of a value, for every kind of parameter.

    `gradient_and_state`: bytes of a value of these; None: as many as of the weight (`grad_dtype` is that of adapters).
    `unreached`: those that want a gradient and get none.
    """

    trainable: tuple[str, ...] | None
    trains_all: bool
    widths: tuple[int, ...]
    gradient_and_state: tuple[int, int] | None
    head_dim: int
    unreached: frozenset[str]


_known: Memo[tuple[object, ...], _All] = Memo(128)


def _of_base(model: Model, runs: Execution, asked: _Asked) -> Iterator[tuple[TrainedTensor, Parameter]]:
    kinds = alike(model).kinds
    for p in model.parameters:
        if runs.trains(p.name) and not p.frozen:
            size = asked.widths[kinds[p.name]]
            grad, state = asked.gradient_and_state or (size, size)
            grad, state = (0, 0) if p.name in asked.unreached else (grad, state)
            yield TrainedTensor(p.name, p.shape, p.part, p.is_linear, size, grad, state, asked.head_dim), p


def _of_adapters(
    added: tuple[Adapter, ...], grad: int, state: int, size: int, unreached: frozenset[str]
) -> Iterator[tuple[TrainedTensor, Parameter]]:  # fmt: skip
    for adapter in added:
        name, base = f"{adapter.module}.lora", adapter.base
        of_gradient = (0, 0) if base.name in unreached else (grad, state)
        for shape in adapter.shapes:
            yield TrainedTensor(name, shape, base.part, True, size, *of_gradient), base


@record(eq=False)
class Alike:
    """The number of each parameter's kind by its name, and the first of each kind: others differ by their layer."""

    kinds: Mapping[str, int]
    firsts: tuple[Parameter, ...]


@lru_cache(maxsize=64)
def alike(model: Model) -> Alike:
    """Which parameters of a model are alike."""
    numbers: dict[tuple[object, ...], int] = {}
    firsts: list[Parameter] = []
    kinds: dict[str, int] = {}
    for p in model.all_parameters:
        own = _without_layer(p.name, p), p.shape, p.part, p.shard, p.is_linear, p.layer is None, p.frozen
        kinds[p.name] = number = numbers.setdefault(own, len(firsts))
        if number == len(firsts):
            firsts.append(p)
    return Alike(kinds, tuple(firsts))


def _without_layer(name: str, p: Parameter) -> str:
    return name.replace(f".{p.layer}.", "..")


@record(eq=False)
class OfStage:
    """The trained tensors of a pipeline stage; `kinds`: one of those that differ by their layers alone, and how many.

    `numel`: of all; `small_gradients`: of those whose gradient is a small block.
    """

    pairs: tuple[tuple[TrainedTensor, Parameter], ...]
    kinds: tuple[tuple[TrainedTensor, Parameter, int], ...]
    names: frozenset[str]
    numel: int
    small_gradients: int


def of_stage(model: Model, train: ResolvedTrain, placement: Placement) -> OfStage:
    """What a rank's stage trains, whatever it is divided over."""
    return _on_stage(model, _all_trained(model, _without_layout(train)), stage_of(placement))


def stage_of(placement: Placement) -> Placement:
    """The rank's stage alone: which layers it has."""
    if placement.stages == 1:
        return ALONE
    return Placement(
        stages=placement.stages, stage=placement.stage, first_layer=placement.first_layer,
        last_layer=placement.last_layer,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _on_stage(model: Model, trained: _All, stage: Placement) -> OfStage:
    pairs = tuple((tensor, base) for tensor, base in trained.pairs if stage.holds(base))
    numbers = alike(model).kinds
    first: dict[tuple[object, ...], tuple[TrainedTensor, Parameter]] = {}
    counts: Counter[tuple[object, ...]] = Counter()
    for tensor, base in pairs:
        name = "" if tensor.name == base.name else _without_layer(tensor.name, base)
        kind = numbers[base.name], name, tensor.shape, tensor.param_bytes, tensor.grad_bytes
        first.setdefault(kind, (tensor, base))
        counts[kind] += 1
    kinds = tuple((*first[kind], count) for kind, count in counts.items())
    small = [(rounded(tensor.numel * tensor.grad_bytes), count) for tensor, _, count in kinds]
    return OfStage(
        pairs, kinds, frozenset(base.name for tensor, base in pairs if tensor.name == base.name),
        numel=sum(tensor.numel * count for tensor, _, count in kinds),
        small_gradients=sum(size * count for size, count in small if is_small(size)),
    )  # fmt: skip


def is_small(nbytes: int) -> bool:
    """Whether torch's allocator takes a tensor from its pool of small blocks."""
    return nbytes <= SMALL_SIZE


@lru_cache(maxsize=1024)
def step_of(here: OfStage, optimizer: str, implementation: str) -> tuple[int, int]:
    """Bytes that a step of all tensors takes, and one of those with small states."""
    stepping = [tensor for tensor, _ in here.pairs]
    small = [t for t in stepping if is_small(t.numel * t.state_bytes)]
    return (
        step_transient_bytes(optimizer, implementation, stepping),
        step_transient_bytes(optimizer, implementation, small),
    )


@lru_cache(maxsize=1024)
def frozen_beside(
    model: Model, here: OfStage, stage: Placement, keeps_originals: bool
) -> tuple[tuple[Parameter, int], ...]:  # fmt: skip
    """The frozen weights of a stage, each storage once: one of each kind, and how many.

    `keeps_originals`: what trains is a copy, and its original there too.
    """
    numbers, seen = alike(model).kinds, set[str]()
    first: dict[int, Parameter] = {}
    counts: Counter[int] = Counter()
    for p in model.parameters:
        storage = p.original or p.name
        if (keeps_originals or p.name not in here.names) and storage not in seen and stage.holds(p):
            seen.add(storage)
            first.setdefault(numbers[p.name], p)
            counts[numbers[p.name]] += 1
    return tuple((first[number], count) for number, count in counts.items())


@lru_cache(maxsize=1024)
def stepped_sizes(here: OfStage, placement: Placement) -> tuple[int, ...]:
    """Values of each tensor, in order, that a rank's optimizer steps."""
    sizes = ((base, tensor.numel) for tensor, base in here.pairs)
    return tuple(placement.stepped_numel(base, placement.local_numel(base, numel)) for base, numel in sizes)
