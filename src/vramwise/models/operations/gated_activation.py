"""act(gate)·up as one operation: inside experts, and where a kernel library joins what a block's list has as two."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.activations import apply_activation
from vramwise.records import record


@record(kw_only=True, eq=False)
class GatedActivation(Operation):
    function: str


@record(kw_only=True, eq=False)
class ExpertGate(GatedActivation):
    """The same inside experts."""


@lowering(ExpertGate)
@lowering(GatedActivation)
def gated_activation(run: Lowering, op: GatedActivation, gate: Tensor, up: Tensor) -> Tensor:
    """An activation and a product, as transformers runs them."""
    return run.tape.mul(apply_activation(run.tape, op.function, gate), up)
