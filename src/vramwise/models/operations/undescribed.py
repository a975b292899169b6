"""Operations whose parameters and states are known and whose saved activations are not described yet."""

from __future__ import annotations

from typing import NoReturn

from vramwise.errors import UnsupportedModelError
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.records import record


@record(kw_only=True, eq=False)
class Undescribed(Operation):
    """Known by its parameters only; `name` says what it is."""

    is_described = False
    name: str


class Stored(Operation):
    """Tensors of a file of which nothing else is known."""

    __slots__ = ()


def refusal(op: Undescribed) -> UnsupportedModelError:
    """The error of a training that would run it."""
    return UnsupportedModelError(
        f"{op.module or 'model'}: the activations of {op.name} are not described yet, so that training cannot be "
        "estimated; parameters and caches are"
    )


@lowering(Undescribed)
def undescribed(run: Lowering, op: Undescribed, *inputs: Tensor) -> NoReturn:
    raise refusal(op)


@lowering(Stored)
def stored(run: Lowering, op: Stored, *inputs: Tensor) -> NoReturn:
    raise UnsupportedModelError("only the tensors of this model are known, not what it runs")
