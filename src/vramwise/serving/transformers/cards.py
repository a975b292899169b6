"""What each card holds of a model that `device_map="auto"` lays over several."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from vramwise.models import Block, Model, Parameter
from vramwise.records import record, replace
from vramwise.serving.common.layouts import PLAIN
from vramwise.serving.common.storage import Storage
from vramwise.serving.common.weights import stage_weights
from vramwise.serving.transformers.device_map import HOST, DeviceMap, Place


@record(eq=False)
class Card:
    """One card: `held` is the model with what lies on it alone.

    Generation works on the first card, to which the hook of the whole model moves the logits (accelerate 1.15
    big_modeling.py `dispatch_model`, hooks.py AlignDevicesHook: `io_same_device` for the root module).
    """

    number: int
    held: Model
    is_first: bool = True
    has_head: bool = True
    has_layers: bool = True


def only_card(model: Model) -> Card:
    """A card that holds all of it."""
    return Card(0, model)


@lru_cache(maxsize=64)
def cards_of(model: Model, placed: DeviceMap, count: int) -> tuple[Card, ...]:
    """The cards that hold something of the model; the last one also what finds no place on any."""
    blocks: dict[int, list[Block]] = {}
    for block in model.blocks:
        for place, part in _parts(block, placed):
            blocks.setdefault(count - 1 if place == HOST else int(place), []).append(part)
    head = model.blocks[-1].parameters[-1:]
    with_head = _place(head[0], placed) if head else count - 1
    with_head = count - 1 if with_head == HOST else with_head
    return tuple(
        Card(
            number, replace(model, blocks=tuple(held)), is_first=number == 0, has_head=number == with_head,
            has_layers=any(block.layer is not None for block in held),
        )
        for number, held in sorted(blocks.items())
    )  # fmt: skip


def bytes_in_host(model: Model, placed: DeviceMap, storage: Storage) -> int:
    """Bytes of the weights that find no place on any card."""
    if not placed.uses_host:
        return 0
    left = tuple(part for block in model.blocks for place, part in _parts(block, placed) if place == HOST)
    return stage_weights(replace(model, blocks=left), storage, PLAIN)[0].tensor_bytes


def _place(parameter: Parameter, placed: DeviceMap) -> Place:
    return placed.place_of(parameter.tied_to or parameter.name)


def _parts(block: Block, placed: DeviceMap) -> Iterator[tuple[Place, Block]]:
    """What of a block lies where: itself, or where it is cut the same with fewer parameters.

    Its caches lie with its first parameter, as a layer that is not cut has them.
    """
    places = {parameter.name: _place(parameter, placed) for parameter in block.parameters}
    buffers = {buffer.name: placed.place_of(buffer.name) for buffer in block.buffers}
    every = list(dict.fromkeys([*places.values(), *buffers.values()]))
    if len(every) <= 1:
        yield (every[0] if every else 0), block
        return
    for place in every:
        ops = tuple(
            op.at(op.module, op.inputs, op.outputs, tuple(p for p in op.parameters if places[p.name] == place))
            for op in block.ops
        )
        held = tuple(buffer for buffer in block.buffers if buffers[buffer.name] == place)
        caches = block.caches if place == every[0] else ()
        yield place, replace(block, ops=ops, buffers=held, caches=caches)
