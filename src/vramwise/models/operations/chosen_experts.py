"""What routers and the experts behind them have in common."""

from __future__ import annotations

from vramwise.models.blocks import Operation
from vramwise.records import record


@record(kw_only=True, eq=False)
class ChosenExperts(Operation):
    """What picks the best few experts for each token, or runs them."""

    experts_per_token: int
    num_experts: int = 0


@record(kw_only=True, eq=False)
class StackedExperts(ChosenExperts):
    """Experts whose weights are one tensor.

    `transposed`: its last axis is what comes out. `fused_branches`: for how many linear layers of older checkpoints the
    first tensor stands, 0 for experts that peft does not wrap.
    """

    transposed: bool = False
    fused_branches: int = 0
