"""Whether a rank's share of a layer is even, and what engines with quantized layers ask alike.

What one engine asks by itself is in its own `shards.py`. Sources, read in the wheels: vLLM 0.6.6 to 0.33.0
model_executor/layers/quantization/fp8.py, awq.py and gptq_marlin.py, SGLang 0.4.6 to 0.5.23 layers/quantization/fp8.py,
awq.py, gptq.py; text-generation-inference 3.3.7 utils/weights.py get_sharded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vramwise.formats import QuantFormat
from vramwise.records import record
from vramwise.serving.common.shards import Shard
from vramwise.serving.common.versions import Version

AWQ_PACKED = 8  # 4-bit values in an int32
FP8 = "layers/quantization/fp8.py"


@record
class Case:
    """What the rules hang on besides the shard: `ranks` share a layer, `method` is the checkpoint's quant_method."""

    version: Version
    ranks: int
    expert_ranks: int
    dtype: str
    capability: float | None
    method: str
    model_type: str


@record
class Problem:
    """Why a shard does not work: `what` happens, the engine's `rule` and where it stands.

    `of_experts`: whole experts would do; `of_format`: it hangs on the checkpoint's format; `refused`: the engine asks,
    else it starts and computes with the scales of other groups.
    """

    what: str
    rule: str
    of_experts: bool
    of_format: bool = True
    refused: bool = True


ShardRule = Callable[[Shard, QuantFormat, Case], Problem | None]
"""What an engine asks of a shard in some format."""


def uneven(shard: Shard, case: Case) -> Problem | None:
    """Every engine shares rows and columns evenly (vLLM distributed/utils.py divide; fused_moe asserts the same)."""
    if shard.even:
        return None
    ranks = case.expert_ranks if shard.kind == "experts" else case.ranks
    size = shard.whole_inputs if shard.kind != "column" else shard.parameter.shape[0]
    what = f"{ranks} ranks do not share the {size:,} {_axis(shard)} of {shard.label} evenly"
    return Problem(what, "layers are cut evenly", shard.kind == "experts", of_format=False)


def _axis(shard: Shard) -> str:
    return "rows" if shard.kind == "column" else "columns" if shard.kind == "row" else "intermediate values"


def row_blocks(shard: Shard, columns: int, case: Case) -> Problem | None:
    """A row-cut layer's share of columns fills whole blocks; a layer smaller than one block is left in 16 bits."""
    if case.ranks == 1 or shard.inputs % columns == 0 or shard.whole_inputs < columns:
        return None
    return _straddles(shard.label, f"{shard.inputs:,} of {shard.whole_inputs:,} columns", columns)


def is_cut_by_rows(shard: Shard, rows: int, case: Case) -> bool:
    """Whether blocks of a column-cut or fused layer may be split; layers smaller than one are left in 16 bits."""
    return (shard.is_fused or case.ranks > 1) and shard.parameter.shape[0] >= rows


def column_blocks(sizes: Iterable[tuple[int, str]], rows: int) -> Problem | None:
    """Rows that a rank holds, by the layer that they are of, fill whole blocks."""
    bad = next(((size, label) for size, label in sizes if size % rows), None)
    return None if bad is None else _straddles(bad[1], f"{bad[0]:,} rows", rows)


def expert_blocks(shard: Shard, block: tuple[int, int], case: Case, where: str = FP8) -> Problem | None:
    """The gate's and up's rows, and the down projection's columns where ranks share experts, fill whole blocks."""
    rows, columns = block
    size = shard.inputs
    if size % rows == 0 and (case.ranks == 1 or size % columns == 0):
        return None
    held = f"a rank holds {size:,} of an expert's {shard.whole_inputs:,} rows"
    return Problem(f"{held}, which blocks of {rows if size % rows else columns} do not divide", where, True)


def _straddles(label: str, held: str, block: int) -> Problem:
    return Problem(f"a rank holds {held} of {label}, which blocks of {block} do not divide", FP8, False)


def row_groups(shard: Shard, group: int, case: Case, where: str, *, refused: bool = True) -> Problem | None:
    """A row-cut layer's share of columns fills whole groups."""
    cut = shard.kind == "row" and case.ranks > 1
    if not (cut and 0 < group < shard.whole_inputs and shard.inputs % group):
        return None
    held = f"{shard.inputs:,} of {shard.whole_inputs:,} columns of {shard.label}"
    what = f"a rank holds {held}, which groups of {group} do not divide"
    return Problem(what, where, False, refused=refused)


def awq_rows(shard: Shard) -> Problem | None:
    """AWQ's zero points are packed by eight rows."""
    rows = sum(shard.outputs)
    if rows % AWQ_PACKED == 0:
        return None
    return Problem(f"a rank holds {rows:,} rows of {shard.label}, not a multiple of 8", "quantization/awq.py", False)


def where_groups_are_asked(format: QuantFormat) -> str:
    """The file whose kernels ask how ranks share the groups of a format."""
    return {"awq": "quantization/awq.py", "packed": "compressed_tensors_wNa16.py"}.get(format.layout, "gptq_marlin.py")
