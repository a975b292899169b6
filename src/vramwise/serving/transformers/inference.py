"""What transformers holds inside one layer of a forward pass without gradients: the model's recorded operations."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, cast

from vramwise.errors import UnsupportedModelError
from vramwise.models import Model
from vramwise.models.autograd.size import Dim, evaluate, product, total, with_rounded_axes
from vramwise.models.autograd.tensor import ITEM_BYTES
from vramwise.models.execution import Execution
from vramwise.models.forward_walk import walk_forward
from vramwise.models.moments import Moment, largest, undominated
from vramwise.models.step import BlockRun, Structure, record_forward, structure_of
from vramwise.serving.common.forward.modules import forward_live_set

_BATCHES = (1, 2, 64, 4096)
_SEQUENCES = tuple(2**power for power in range(1, 22))
GROUPED_EXPERTS = (5,)  # transformers from here on runs all chosen experts at once, before one expert at a time


def layer_peak_bytes(
    model: Model, *, dtype: str, element_bytes: int, attention: str, batch: int, sequence: int,
    version: tuple[int, ...], embeds: bool = True,
) -> int:  # fmt: skip
    """Bytes alive at the fullest moment of any layer while (batch, sequence) tokens pass.

    The walk of the layer's operations, plus the layer's input and the embeddings' output, which the frames around
    still name; a card that does not embed (`embeds`) holds the layer's input alone. Where the operations cannot be
    recorded, the simpler walk of `forward`, and `simpler_walk_note` says so; before version 5 routed experts run one
    at a time, which is that walk too.
    """
    held = (2 if embeds else 1) * model.hidden_size * batch * sequence * element_bytes
    simple = forward_live_set(model).elements * batch * sequence * element_bytes
    if "experts" in model.parts and version < GROUPED_EXPERTS:
        return simple
    kernel = cast(Literal["eager", "sdpa", "flash"], attention)
    moments = _moments(model, dtype, kernel, structure_of(model, batch, sequence), batch, sequence)
    if not moments or isinstance(moments, str):
        return simple
    return held + largest(moments, with_rounded_axes(batch=batch, sequence=sequence)).total


def simpler_walk_note(model: Model, *, dtype: str, attention: str, batch: int, sequence: int) -> str | None:
    """What a person is told where the operations of the model's layers cannot be recorded; None where they can."""
    kernel = cast(Literal["eager", "sdpa", "flash"], attention)
    found = _moments(model, dtype, kernel, structure_of(model, batch, sequence), batch, sequence)
    if not isinstance(found, str):
        return None
    return f"what a layer holds while it runs is worked out from the widths of its operations alone: {found}"


def _execution(dtype: str, attention: Literal["eager", "sdpa", "flash"]) -> Execution:
    backend: Literal["flash", "auto"] = "flash" if attention == "flash" else "auto"
    return Execution(
        param_dtype=dtype, attention=attention, dropout=False, trainable=("",), sdpa_backend=backend
    )  # fmt: skip


_known: dict[tuple[Model, str, str, Structure], tuple[Moment, ...] | str] = {}


def _moments(
    model: Model, dtype: str, attention: Literal["eager", "sdpa", "flash"], structure: Structure, batch: int,
    sequence: int,
) -> tuple[Moment, ...] | str:  # fmt: skip
    """The moments that can be largest, of all layers, or why the model cannot be recorded."""
    key = (model, dtype, attention, structure)
    if key not in _known:
        if len(_known) >= 256:
            _known.clear()
        _known[key] = _recorded(model, _execution(dtype, attention), batch, sequence)
    return _known[key]


def _recorded(model: Model, execution: Execution, batch: int, sequence: int) -> tuple[Moment, ...] | str:
    try:
        forward = record_forward(model, execution, batch=batch, sequence=sequence)
    except UnsupportedModelError as error:
        return str(error)
    runs = {id(run): run for run in forward.runs if run.layer is not None}
    masks = _masks(model, list(runs.values()))
    walked = undominated([moment for run in runs.values() for moment in walk_forward(run, kept=()).moments])
    return _winners(tuple(replace(moment, temporaries=moment.temporaries + masks) for moment in walked))


def _masks(model: Model, runs: list[BlockRun]) -> Dim:
    """Attention masks, one for each kind of window: the model's own frame keeps them for all layers."""
    windows = {block.layer: block.caches[0].window if block.caches else None for block in model.layers()}
    found: dict[int | None, Dim] = {}
    for run in runs:
        for tensor in (tensor for node in run.nodes for tensor in node.inputs):
            if tensor.storage.op == "mask":
                rows = tensor.shape[1:] if tensor.dtype == "bool" else tensor.shape
                found[windows.get(run.layer)] = product(rows) * ITEM_BYTES[tensor.dtype]
    return total(found.values())


def _winners(moments: tuple[Moment, ...]) -> tuple[Moment, ...]:
    """The moments that are largest at some power of two of batch and sequence: a handful, in place of dozens."""
    won: dict[int, Moment] = {}
    for batch in _BATCHES:
        for sequence in _SEQUENCES:
            axes = with_rounded_axes(batch=batch, sequence=sequence)
            best = max(moments, key=lambda moment: evaluate(moment.total, axes), default=None)
            if best is not None:
                won[id(best)] = best
    return tuple(won.values())
