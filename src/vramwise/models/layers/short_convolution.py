"""The causal convolution over a few positions that recurrent mixers begin with."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.operations.mixers import CausalConv1d


def short_convolution(
    b: BlockBuilder, x: Value, module: str, kernel: int, *, function: str | None, bias: bool = False
) -> Value:
    """A causal convolution over positions, each channel for itself, and its activation; `x` is channels-first."""
    parameters = [b.parameter(module, "weight", (x.width, 1, kernel), shard="column")]
    if bias:
        parameters.append(b.parameter(module, "bias", (x.width,), shard="column"))
    return b.unary(CausalConv1d(function=function), x, module, parameters)
