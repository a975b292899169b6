"""What routers and the experts behind them have in common."""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.models.blocks import Operation


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ChosenExperts(Operation):
    """What picks the best few experts for each token, or runs them."""

    experts_per_token: int
    num_experts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StackedExperts(ChosenExperts):
    """Experts whose weights are one tensor.

    `transposed`: its last axis is what comes out. `fused_branches`: for how many linear layers of older checkpoints the
    first tensor stands, 0 for experts that peft does not wrap.
    """

    transposed: bool = False
    fused_branches: int = 0
