"""How much of a card's memory PyTorch sees as its total (`torch.cuda.mem_get_info()[1]`).

In order: totals printed by PyTorch on that card; the driver's total less what the driver keeps for itself,
reserve = fixed + share · total, fitted to the cards where both are known; the size as sold, where no tool's
output is known. Devices that share the host's memory: shared_memory.py. Constants: calibration.csv.

Before it allocates anything a process takes a CUDA context and loaded kernels (context.csv).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from vramwise.records import record
from vramwise.site import learned
from vramwise.tables import Row, table
from vramwise.units import GB, GIB, MIB

if TYPE_CHECKING:
    from vramwise.hardware.gpu import Gpu


@cache
def calibrated(name: str) -> tuple[float, float, float]:
    """low, expected and high of one calibrated constant."""
    row = next(row for row in table(__file__, "calibration") if row["name"] == name)
    return row.number("low"), row.number("expected"), row.number("high")


def median_bytes(sizes: list[int]) -> int:
    """Median of whole numbers (the statistics module would double the time this package takes to import)."""
    ordered = sorted(sizes)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


@record
class MemoryEstimate:
    """Bytes with an interval, and the rule and evidence behind them."""

    low: int
    expected: int
    high: int
    rule: str
    source: str


def reported_bytes(row: Row) -> int | None:
    """The driver's own total where somebody printed it."""
    mib = row.number_or_none("memory_total_mib")
    return None if mib is None else round(mib * MIB)


def nominal_total(vendor: str, nominal_gb: float, *, shared: bool) -> int:
    """What a driver reports of memory sold as so many GB (GiB on every card): NVIDIA's takes a little off."""
    share = calibrated("nvidia_reported_share")[1] if vendor == "NVIDIA" and not shared else 1.0
    return round(nominal_gb * GIB * share)


def seen_by_processes(total_bytes: int) -> int:
    """What a process sees of a driver's total where the driver does not say what it keeps for itself (calibrated)."""
    share, fixed = calibrated("torch_reserve_share")[1], calibrated("torch_reserve_fixed")[1]
    return round(total_bytes * (1 - share) - fixed * GIB)


def usable_memory(row: Row) -> MemoryEstimate | None:
    """Bytes of one device that PyTorch reports as its total; None where nothing is known of its size."""
    reported = reported_bytes(row)
    if reported is not None and row["vendor"] == "NVIDIA":
        ruled: MemoryEstimate | None = _less_reserve(reported, reported, reported, row)
    else:
        ruled = _from_nominal(row)
    return _seen_total(row["id"], ruled) or ruled


@cache
def _seen_total(gpu: str, ruled: MemoryEstimate | None) -> MemoryEstimate | None:
    """Median of the totals printed on this card; a single one keeps the rule's interval."""
    rows = [row for row in table(__file__, "torch_totals") if row["gpu"] == gpu]
    if not rows:
        return None
    totals = sorted(round(row.number("total_gib") * GIB) for row in rows)
    sources = "; ".join(dict.fromkeys(row["source"] for row in rows))
    expected = median_bytes(totals)
    if ruled is not None and len(totals) == 1:
        totals = sorted([ruled.low, *totals, ruled.high])
    return MemoryEstimate(totals[0], expected, totals[-1], "total seen by PyTorch on this card", sources)


def _less_reserve(low: int, expected: int, high: int, row: Row) -> MemoryEstimate:
    if row["older_driver"]:
        rule = "driver total; this driver leaves its reserve out already"
        return MemoryEstimate(low, expected, high, rule, row["memory_source"])
    least, usual, most = calibrated("torch_reserve_fixed")
    share = calibrated("torch_reserve_share")[1]
    return MemoryEstimate(
        round(low * (1 - share) - most * GIB),
        round(expected * (1 - share) - usual * GIB),
        round(high * (1 - share) - least * GIB),
        "driver total less what the driver keeps for itself (calibrated)",
        row["memory_source"] or "size as sold; no driver output known",
    )


def _from_nominal(row: Row) -> MemoryEstimate | None:
    nominal = row.number_or_none("memory_nominal_gb")
    if nominal is None:
        return None
    nominal /= row.whole("devices")
    if row["vendor"] == "NVIDIA":
        low, expected, high = (round(nominal * GIB * part) for part in calibrated("nvidia_reported_share"))
        return _less_reserve(low, expected, high, row)
    if row["vendor"] == "AMD":
        low, expected, high = (round(nominal * GIB * part) for part in calibrated("amd_usable_share"))
        return MemoryEstimate(low, expected, high, "share of the size as sold (calibrated)", row["source"])
    low, high = round(nominal * GB), round(nominal * GIB)
    rule = "size as sold, read as GB (assumed: no tool's output is known); high reads it as GiB"
    return MemoryEstimate(low, low, high, rule, row["source"])


def context_bytes(gpu: Gpu | None, lazy_loading: bool = True) -> MemoryEstimate:
    """CUDA context of one process on `gpu`: multiprocessors · MiB each, or the median measured on that card.

    `lazy_loading` is how CUDA 11.7 and later load kernels; earlier ones load all at start. The interval is
    that of the rule, widened to what was measured. NCCL, cuBLAS workspaces and graphs are not counted.
    Constants and measurements: calibration.csv, context.csv. Devices without CUDA or HIP have none.
    """
    if gpu is not None and not gpu.runs_cuda_code:
        return MemoryEstimate(0, 0, 0, "no CUDA; what this device's own runtime takes is not known", "none")
    mode = "lazy" if lazy_loading else "eager"
    if gpu is None or gpu.sm_count is None:
        low, expected, high = (round(mib * MIB) for mib in calibrated("context_unknown"))
        return MemoryEstimate(low, expected, high, "median of other cards", "calibration.csv context_unknown")
    per_sm = calibrated(f"context_per_sm_{mode}")
    low, expected, high = (round(mib * gpu.sm_count * MIB) for mib in per_sm)
    measured = [row for row in table(__file__, "context") if row["gpu"] == gpu.id and row["loading"] == mode]
    if not measured:
        rule = f"{gpu.sm_count} multiprocessors × {per_sm[1]} MiB (calibrated)"
        return MemoryEstimate(low, expected, high, rule, f"calibration.csv context_per_sm_{mode}")
    sizes = [round(row.number("mib") * MIB) for row in measured]
    sources = "; ".join(row["source"] for row in measured)
    return MemoryEstimate(min(low, *sizes), median_bytes(sizes), max(high, *sizes), "measured on this card", sources)


def context_of_torch(gpu: Gpu | None, lazy_loading: bool = True) -> MemoryEstimate:
    """The context of a process that runs torch and no engine: as runs on this site showed it, else `context_bytes`."""
    shipped = context_bytes(gpu, lazy_loading)
    if gpu is None or not gpu.runs_cuda_code or not lazy_loading:
        return shipped
    here = learned("context", (shipped.low, shipped.expected, shipped.high), gpu=gpu.id, program="torch")
    if here is None:
        return shipped
    low, expected, high = (round(end) for end in here.ends)
    return MemoryEstimate(low, expected, high, here.said, here.source)
