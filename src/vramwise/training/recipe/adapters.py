"""Low-rank adapters as peft 0.21 places them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from vramwise.errors import ScenarioError, clipped, nearest
from vramwise.models.blocks import Parameter
from vramwise.models.model import Model

_EXPRESSION = frozenset("*+?()[]{}|\\^$")
"""Characters that make a target an expression; a point is in every path."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """The tensors added to one module: A (rank, in), B (out, rank), and DoRA's magnitude (out)."""

    module: str
    layer: int | None
    base: Parameter
    shapes: tuple[tuple[int, ...], ...]


def module_of(parameter: Parameter) -> str:
    """The module that owns a parameter."""
    return parameter.name.rpartition(".")[0]


def target_names(model: Model, targets: str | tuple[str, ...]) -> frozenset[str]:
    """Last components of the module names that get adapters.

    `all-linear` is every linear layer but the output head (peft `_maybe_include_all_linear_layers`). A name may
    be a path's end (`mlp.up_proj`), or an expression that a whole path matches (`.*self_attn.(q|v)_proj`), as a string
    is in peft. Raises `ScenarioError` when nothing in the model has such a name.
    """
    found = {module_of(p).rpartition(".")[2] for p in targeted(model, targets)}
    if not found:
        known = sorted({module_of(p).rpartition(".")[2] for p in model.parameters if p.is_linear})
        asked = targets if isinstance(targets, str) else ", ".join(targets)
        close = ", ".join(nearest(asked, known) or known)
        raise ScenarioError("train.lora_targets", f'no module of the model is called "{asked}"; it has {close}')
    return frozenset(found)


def check_trainable(model: Model, pieces: tuple[str, ...]) -> None:
    """Raises `ScenarioError` for a piece that is in no parameter's name, so that it would train nothing."""
    names = [parameter.name for parameter in model.all_parameters] if pieces else []
    for piece in pieces:
        if not any(piece in name for name in names):
            known = sorted({part for name in names for part in name.split(".") if not part.isdigit()})
            problem = f'"{clipped(piece)}" is in no parameter\'s name'
            raise ScenarioError("train.trainable", f"{problem}; they have {', '.join(nearest(piece, known) or known)}")


def targeted(model: Model, targets: str | tuple[str, ...]) -> Iterator[Parameter]:
    """The weights that get adapters."""
    for parameter in model.all_parameters:
        if len(parameter.shape) != 2 or not (parameter.is_linear or parameter.part == "embedding"):
            continue
        if targets == "all-linear":
            if parameter.is_linear and parameter.part != "head":
                yield parameter
        elif _named(module_of(parameter), (targets,) if isinstance(targets, str) else targets):
            yield parameter


def _named(module: str, targets: tuple[str, ...]) -> bool:
    return any(module == target or module.endswith(f".{target}") or _matches(module, target) for target in targets)


def _matches(module: str, target: str) -> bool:
    if not set(target) & _EXPRESSION:
        return False
    try:
        return re.fullmatch(target, module) is not None
    except re.error as problem:
        raise ScenarioError("train.lora_targets", f'"{clipped(target)}" is no expression: {problem}') from None


def adapters(model: Model, targets: str | tuple[str, ...], rank: int, *, dora: bool = False) -> tuple[Adapter, ...]:
    """Every adapter: rank · (in + out) parameters each, with DoRA one more for each output.

    Embeddings named as targets get (rank, rows) and (width, rank).
    """
    result = []
    for parameter in targeted(model, targets):
        # An embedding maps rows to columns; a linear weight is (out, in).
        rows, columns = parameter.shape if parameter.part != "embedding" else parameter.shape[::-1]
        shapes: tuple[tuple[int, ...], ...] = ((rank, columns), (rows, rank))
        if dora:
            shapes = (*shapes, (rows,))
        result.append(Adapter(module_of(parameter), parameter.layer, parameter, shapes))
    return tuple(result)
