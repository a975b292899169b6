"""Which number formats and attention kernels run on an architecture."""

from __future__ import annotations

from functools import cache

from vramwise.records import record
from vramwise.tables import table


@record
class Support:
    """Each field is `yes`, `no`, `partial` or `unknown`; `note` says what the words leave out."""

    bf16: str
    fp8_gemm: str
    fp8_weights: str
    fp4: str
    flash_attention_1: str
    flash_attention_2: str
    flash_attention_3: str
    note: str
    source: str


_NOT_KNOWN = "unknown"
UNKNOWN = Support(
    bf16=_NOT_KNOWN,
    fp8_gemm=_NOT_KNOWN,
    fp8_weights=_NOT_KNOWN,
    fp4=_NOT_KNOWN,
    flash_attention_1=_NOT_KNOWN,
    flash_attention_2=_NOT_KNOWN,
    flash_attention_3=_NOT_KNOWN,
    note="",
    source="no support table for this device",
)


@cache
def support_of(compute_capability: str) -> Support:
    """The row of support.csv for a compute capability (`9.0`) or gfx name (`gfx942`): exact, else major."""
    rows = {row["key"]: row for row in table(__file__, "support")}
    major = compute_capability.partition(".")[0] if "." in compute_capability else compute_capability[:5]
    row = rows.get(compute_capability) or rows.get(major)
    if row is None:
        return UNKNOWN
    return Support(
        row["bf16"],
        row["fp8_gemm"],
        row["fp8_weights"],
        row["fp4"],
        row["flash_attention_1"],
        row["flash_attention_2"],
        row["flash_attention_3"],
        row["note"],
        row["source"],
    )
