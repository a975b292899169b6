"""Adapters that a server holds beside the weights: A and B of linear layers at a rank, of all or of those named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from vramwise.models import Block
from vramwise.models.adapters import adapter_shapes
from vramwise.models.blocks import Operation, Parameter
from vramwise.models.parallel_cut import ParallelCut, key_value_rows
from vramwise.scenario.definition import ServeSettings

ALL_LINEAR = "all-linear"
Targets = str | tuple[str, ...]
DEFAULT_RANK = 16
"""Where adapters are asked for and their rank is not: vLLM's and SGLang's own default."""


def adapters_asked(settings: ServeSettings) -> tuple[int, int]:
    """How many adapters are held, 0 for none, and their rank."""
    if settings.max_loras is None and settings.max_lora_rank is None:
        return 0, 0
    return settings.max_loras or 1, settings.max_lora_rank or DEFAULT_RANK


def adapted_sizes(block: Block, cut: ParallelCut, targets: Targets = ALL_LINEAR) -> list[tuple[str, int]]:
    """Inputs and outputs of each linear layer of a block that adapters change, by its module's last name."""
    found = []
    for _, parameter in _adapted(block, cut):
        name = parameter.module.rpartition(".")[2]
        if targets == ALL_LINEAR or name in targets or parameter.module in targets:
            found.append((name, sum(parameter.shape)))
    return found


def adapted_elements(block: Block, cut: ParallelCut, rank: int) -> int:
    """Elements of one adapter of every linear layer of a block."""
    return sum(prod(tensor) for op, parameter in _adapted(block, cut) for tensor in adapter_shapes(op, parameter, rank))


def _adapted(block: Block, cut: ParallelCut) -> Iterator[tuple[Operation, Parameter]]:
    """Weights that adapters may change, each with a rank's share as its shape, and the operation that reads it."""
    ops = {parameter: op for op in block.ops for parameter in op.parameters}
    key_values = key_value_rows(block)
    for parameter in block.parameters:
        if parameter.is_linear and len(parameter.shape) == 2 and parameter.part in ("attention", "mlp", "mixer"):
            op, made = ops[parameter], key_values.get(parameter.module)
            shape = cut.shape(parameter, inputs_first=op.inputs_first, key_values=made)
            yield op, replace(parameter, shape=shape)
