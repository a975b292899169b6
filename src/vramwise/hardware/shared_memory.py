"""What one process may take of memory that a device shares with its host, by default.

Apple: Metal's recommendedMaxWorkingSetSize, beyond which allocations fail or swap. NVIDIA (Jetson, GB10): CUDA reports
the memory of the whole module, and what the system holds is gone before a process starts. AMD: the part that the kernel
lets graphics take. Sizes that tools printed are in shared_memory.csv, shares in calibration.csv.
"""

from __future__ import annotations

from vramwise.hardware.memory import MemoryEstimate, calibrated
from vramwise.tables import Row, table
from vramwise.units import GIB

_APPLE_STEP_GB = 32  # Metal's share is larger above it
_SMALL_MODULE_GB = 32
_SAID = {
    "Apple": "Metal's recommendedMaxWorkingSetSize",
    "NVIDIA": "what CUDA reports, less what the system holds",
    "AMD": "half of it, as Linux grants to graphics; firmware or ttm.pages_limit may give more",
}


def shared_memory(row: Row, nominal_gb: int) -> MemoryEstimate:
    """Bytes that a process may take of `nominal_gb` (GiB, as memory modules are)."""
    whole = nominal_gb * GIB
    seen = sorted(
        (one.whole("total_bytes"), one["source"]) for one in table(__file__, "shared_memory") if _is_of(one, row, whole)
    )
    if row["vendor"] == "NVIDIA":
        return _after_the_system(nominal_gb, [size for size, _ in seen])
    name = "amd_shared_share"
    if row["vendor"] == "Apple":
        name = "apple_share_to_32gb" if nominal_gb <= _APPLE_STEP_GB else "apple_share_above"
    low, expected, high = (round(whole * share) for share in calibrated(name))
    if seen:  # newer macOS gives more
        sizes = [size for size, _ in seen]
        sources = "; ".join(source for _, source in seen)
        return MemoryEstimate(min(low, *sizes), max(sizes), max(sizes), "printed by Metal for this size", sources)
    return MemoryEstimate(
        low, expected, high, f"usual share of {nominal_gb} GB (calibrated)", f"calibration.csv {name}"
    )


def share_note(row: Row, nominal_gb: int) -> str:
    """What the default is, and how to say something else."""
    usual = shared_memory(row, nominal_gb).expected / GIB
    return (
        f"{row['name']} shares its {nominal_gb} GB with the system: {usual:.1f} GiB are taken as a process's own "
        f"({_SAID[row['vendor']]}); --gpu-total-bytes gives another number"
    )


def _is_of(one: Row, row: Row, whole: int) -> bool:
    if one["gpu"]:
        return one["gpu"] == row["id"]
    return one["vendor"] == row["vendor"] and one.whole("nominal_gb") * GIB == whole


def _after_the_system(nominal_gb: int, seen: list[int]) -> MemoryEstimate:
    """CUDA's total less the system's part."""
    least, usual, most = (round(nominal_gb * GIB * share) for share in calibrated("cuda_shared_total"))
    if seen:
        least, usual, most = seen[0], seen[len(seen) // 2], seen[-1]
    name = "cuda_system_below_32gb" if nominal_gb < _SMALL_MODULE_GB else "cuda_system_above"
    few, some, many = (round(size * GIB) for size in calibrated(name))
    rule = "total that CUDA reports less what the system holds (calibrated)"
    return MemoryEstimate(least - many, usual - some, most - few, rule, f"shared_memory.csv; calibration.csv {name}")
