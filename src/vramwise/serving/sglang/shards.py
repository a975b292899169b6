"""What SGLang asks of a rank's share of a quantized layer.

Read in the wheels 0.4.6 to 0.5.23: layers/quantization/fp8.py, awq.py, gptq.py.
"""

from __future__ import annotations

from vramwise.formats import QuantFormat
from vramwise.models.type_facts import has_fact
from vramwise.serving.common.shard_rules import (
    Case,
    Problem,
    awq_rows,
    column_blocks,
    expert_blocks,
    is_cut_by_rows,
    row_blocks,
    row_groups,
    where_groups_are_asked,
)
from vramwise.serving.common.shards import Shard


def quantized(shard: Shard, format: QuantFormat, case: Case) -> Problem | None:
    """What a format forbids this shard."""
    if format.layout == "fp8" and format.weight_block_size is not None:
        return _blocks(shard, format.weight_block_size, case)
    if format.layout not in ("awq", "gptq", "marlin", "packed") or shard.kind == "experts":
        return None
    problem = row_groups(shard, format.group_size, case, where_groups_are_asked(format))
    return awq_rows(shard) if problem is None and format.layout == "awq" else problem


def _blocks(shard: Shard, block: tuple[int, int], case: Case) -> Problem | None:
    if shard.kind == "experts":
        return expert_blocks(shard, block, case)
    rows, columns = block
    if shard.kind == "row":
        return row_blocks(shard, columns, case)
    unchecked = shard.is_fused and has_fact("sglang", "unchecked_blocks", case.model_type)
    if unchecked or not is_cut_by_rows(shard, rows, case):
        return None
    return column_blocks(zip(shard.outputs, shard.labels, strict=True), rows)
