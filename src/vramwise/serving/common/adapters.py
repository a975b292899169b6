"""Adapters that a server holds beside the weights: a slot has A and B of every linear layer at the largest rank."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from vramwise.models import Block
from vramwise.models.adapters import adapter_shapes
from vramwise.models.parallel_cut import ParallelCut, key_value_rows


def adapted_elements(block: Block, cut: ParallelCut, rank: int) -> int:
    """Elements of one adapter of every linear layer of a block."""
    ops = {parameter: op for op in block.ops for parameter in op.parameters}
    key_values = key_value_rows(block)
    elements = 0
    for parameter in block.parameters:
        if parameter.is_linear and len(parameter.shape) == 2 and parameter.part in ("attention", "mlp", "mixer"):
            op, made = ops[parameter], key_values.get(parameter.module)
            shape = cut.shape(parameter, inputs_first=op.inputs_first, key_values=made)
            elements += sum(prod(tensor) for tensor in adapter_shapes(op, replace(parameter, shape=shape), rank))
    return elements
