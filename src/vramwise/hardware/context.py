"""Memory that a process takes on the GPU before it allocates anything: CUDA context and loaded kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramwise.hardware.calibration import calibrated, median_bytes
from vramwise.hardware.memory import MemoryEstimate
from vramwise.site import learned
from vramwise.tables import table
from vramwise.units import MIB

if TYPE_CHECKING:
    from vramwise.hardware.gpu import Gpu


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
