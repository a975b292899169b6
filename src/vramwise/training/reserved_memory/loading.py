"""Loading a checkpoint onto the GPU, played on the allocator: what stays cached before a step begins.

transformers allocates one block for a whole model and frees it before it loads (modeling_utils.py
`caching_allocator_warmup`, where from_pretrained has a device map onto the GPU): weights are then cut out of its
segment, which stays as large as it was. bitsandbytes' quantizers make such a map where a script gives none
(quantizer_bnb_4bit.py, quantizer_bnb_8bit.py `update_device_map`). Until transformers 5 the block was half the model in
16 bits, whatever it became: more than 4-bit weights need, and activations get the rest. What counted, by version, is in
`WARM_UPS` (read in transformers 4.48 to 5.24).

Weights come one by one: a linear one whole, then its quantized values and scales, and the whole one goes
(bitsandbytes 0.50.2 nn/modules.py Params4bit `_quantize`). k-bit preparation then makes fp32 copies one by one
(peft 0.21 utils/other.py prepare_model_for_kbit_training), which trl before 0.25 narrowed again when the adapters were
there. Trainer empties the cache before its first step (transformers 5.23 trainer.py `accelerator.free_memory`).

Not counted: models that are not quantized by bitsandbytes, whose weights fill the block; what is cut over GPUs; threads
that load whole weights ahead (transformers 5.0 to 5.3); the order of weights in a checkpoint's files.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import library_version
from vramwise.memo import of_model
from vramwise.models.allocator import NoRoomError
from vramwise.models.blocks import Parameter
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import buffer_bytes, keeps_originals, quantizer, stored
from vramwise.training.model_states.trained import trained_tensors, width
from vramwise.training.recipe.fp8_weights import stored_dtype
from vramwise.training.recipe.settings import narrowed_again
from vramwise.training.reserved_memory.traces import Held, Memory
from vramwise.training.resolved import ResolvedTrain
from vramwise.units import GIB

if TYPE_CHECKING:
    from vramwise.formats import QuantFormat

_LEFT_FREE = int(1.2 * GIB)
_FP32, _FP16 = 4, 2


@record
class Card:
    """What CUDA says of a GPU when a model is loaded: bytes in all, and free beside the process's own context."""

    total: int
    free: int


@record
class WarmUp:
    """How large a block is allocated before a quantized model is loaded, since a version of transformers.

    `divisor`: of the bytes counted; 0: no block. `by_format`: quantized weights count with the bits they will have,
    else in their dtype before. `tied`: a tied output layer counts too; `head`: one of its own does.
    """

    since: tuple[int, int]
    divisor: int
    by_format: bool = False
    tied: bool = False
    head: bool = True


WARM_UPS = (
    WarmUp((5, 0), 1, by_format=True),
    # `_get_tied_weight_keys`: names that a class could tie, whether or not it does
    WarmUp((4, 54), 2, head=False),
    WarmUp((4, 51), 2, tied=True),  # quantizers/base.py get_cuda_warm_up_factor: 4, of values of 2 bytes
    WarmUp((0, 0), 0),  # 4.50: `hf_quantizer is None`
)
"""The newest first."""


def warm_up_bytes(model: Model, train: ResolvedTrain, placement: Placement, card: Card | None) -> int:
    """Bytes of the block that is allocated and freed before the weights; 0: none, or none that is counted."""
    if not _loads_quantized(train, placement):
        return 0
    version = library_version(train)
    rule = next(rule for rule in WARM_UPS if version >= rule.since)
    if not rule.divisor:
        return 0
    counted = _counted(model, train, rule)
    if card is not None:
        counted = max(0, min(counted, _most(card, version)))
    return counted // (_FP16 * rule.divisor) * _FP16


def _loads_quantized(train: ResolvedTrain, placement: Placement) -> bool:
    """Whether transformers quantizes the model with bitsandbytes, on a GPU that has all of it."""
    framework = framework_of(train)
    if framework.classes == "own" or not framework.warms_up(train):
        return False
    if train.fsdp != "none" or train.zero_stage == 3 or placement.weight_shards > 1 or placement.stages > 1:
        return False
    if placement.cut.tensor_parallel_size > 1 or placement.cut.expert_parallel_size > 1:
        return False
    if train.quantization is None:
        return False
    from vramwise.frameworks.transformers import BITSANDBYTES

    return train.quantization.startswith(BITSANDBYTES)


@of_model
def _counted(model: Model, train: ResolvedTrain, rule: WarmUp) -> int:
    form, twice = quantizer(model, train), 0  # twice the bytes: 4-bit values have half a byte
    for parameter in model.all_parameters:
        if (parameter.tied_to is not None and not rule.tied) or (parameter.part == "head" and not rule.head):
            continue
        bits = 8 * width(stored_dtype(parameter, train))
        if rule.by_format and _becomes_quantized(parameter, form):
            assert form is not None
            bits = form.bits
        twice += parameter.numel * bits // 4
    return twice // 2


def _most(card: Card, version: tuple[int, int]) -> int:
    """The most that is counted: 4.51 left a twentieth of what was free, later ones 1.2 GiB, since 5.2 of the card."""
    if version < (4, 52):
        return int(0.95 * card.free)
    return (card.free if version < (5, 2) else card.total) - _LEFT_FREE


def _becomes_quantized(parameter: Parameter, form: QuantFormat | None) -> bool:
    return form is not None and form.quantizes(parameter.part, parameter.shape, parameter.is_linear)


def load(memory: Memory, model: Model, train: ResolvedTrain, placement: Placement, warm_up: int) -> None:
    """Allocate weights, adapters and buffers of a rank; `warm_up`: bytes of the block before them, 0 where none is."""
    trained, added = trained_sizes(model, train, placement)
    copies = list(trained.values()) if keeps_originals(train) else []  # made when the model is loaded: their base stays
    trained = {} if copies else trained
    if warm_up:
        memory.drop_all(memory.some(warm_up))
        base_weights = _through_quantizer(memory, model, train, trained)
        if train.kbit_preparation:
            base_weights = _cast(memory, base_weights, _FP32)
    else:
        _as_stored(memory, model, train, placement, trained)
    memory.some(*copies, *(size for _, size in added), *buffer_bytes(model, train, placement))
    if warm_up:
        narrowed = narrowed_again(train)
        if narrowed:
            _cast(memory, [one for one in base_weights if one[0].part in narrowed], _FP16)
        if framework_of(train).trainer:
            memory.empty_cache()


def trained_sizes(
    model: Model, train: ResolvedTrain, placement: Placement
) -> tuple[dict[str, int], list[tuple[Parameter, int]]]:  # fmt: skip
    """A rank's bytes of each base weight that trains, by name, and of each adapter's matrix, with what it adds to."""
    trained: dict[str, int] = {}
    added: list[tuple[Parameter, int]] = []  # an adapter's two matrices go by one name
    for tensor, base in trained_tensors(model, train):
        size = placement.local_numel(base, tensor.numel) * tensor.param_bytes
        if tensor.name == base.name:
            trained[tensor.name] = size
        else:
            added.append((base, size))
    return trained, added


def _is_loaded(parameter: Parameter, trained: dict[str, int]) -> bool:
    """Whether a weight has a storage of its own before adapters and copies come to the model."""
    return parameter.tied_to is None and (parameter.original is None or parameter.name in trained)


def _as_stored(
    memory: Memory, model: Model, train: ResolvedTrain, placement: Placement, trained: dict[str, int]
) -> None:
    form = quantizer(model, train)
    for parameter in model.parameters:
        if _is_loaded(parameter, trained):
            frozen = sum(stored(parameter, placement.local_numel(parameter, parameter.numel), train, form))
            memory.some(trained.get(parameter.name, frozen))


_Plain = list[tuple[Parameter, Held]]


def _through_quantizer(memory: Memory, model: Model, train: ResolvedTrain, trained: dict[str, int]) -> _Plain:
    """Load base weights one by one; those that stay in 16 bits, frozen."""
    form = quantizer(model, train)
    plain: _Plain = []
    for parameter in model.parameters:
        if not _is_loaded(parameter, trained):
            continue
        if parameter.name in trained:
            memory.some(trained[parameter.name])
            continue
        size = parameter.numel * width(stored_dtype(parameter, train))
        if _becomes_quantized(parameter, form):
            assert form is not None
            _quantize(memory, parameter, size, form)
        else:
            held = memory.some(size)
            plain += [(parameter, one) for one in held] if size == _FP16 * parameter.numel else []
    return plain


def _quantize(memory: Memory, parameter: Parameter, size: int, form: QuantFormat) -> None:
    """One expert's weight is whole at a time; scales that are quantized themselves are in fp32 first."""
    experts = parameter.shape[0] if len(parameter.shape) == 3 else 1
    tensors = dict(form.tensors_for(parameter.shape))
    wide_scales = _FP32 * tensors["absmax"] if "nested_absmax" in tensors else 0
    passing = memory.some(size // experts, wide_scales // experts)
    memory.some(*tensors.values())
    memory.drop_all(reversed(passing))


def _cast(memory: Memory, weights: _Plain, width_to: int) -> _Plain:
    """Copies in another width, each of which takes the place of its original."""
    cast: _Plain = []
    for parameter, held in weights:
        cast.append((parameter, memory.hold(width_to * parameter.numel)))
        memory.drop(held)
    return cast


@lru_cache(maxsize=4096)
def most_reserved_by_loading(
    model: Model, train: ResolvedTrain, placement: Placement, warm_up: int, room: int | None
) -> int:
    """The most that loading a model reserves, which counters of a step know as well unless they start anew after it.

    0 where nothing is allocated before the weights, or they do not fit. What is free in segments that grow goes back
    when the cache is emptied.
    """
    begins_anew = framework_of(train).counts_anew
    if not warm_up or (begins_anew and train.expandable_segments):
        return 0
    memory = Memory(room, expandable=train.expandable_segments)
    try:
        load(memory, model, train, placement, warm_up)
    except NoRoomError:
        return 0
    return memory.reserved if begins_anew else memory.peak_reserved
