"""Operations whose parameters and states are known and whose saved activations are not described yet."""

from __future__ import annotations

from typing import NoReturn

from vramwise.errors import UnsupportedModelError
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.lowering import Lowering, lowering


@lowering("undescribed")
def undescribed(run: Lowering, op: Op, *inputs: Tensor) -> NoReturn:
    raise UnsupportedModelError(
        f"{op.module}: the activations of {op.settings['name']} are not described yet, so that training cannot be "
        "estimated; parameters and caches are"
    )
