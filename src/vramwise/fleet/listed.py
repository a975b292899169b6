"""The jobs of a fleet as the rows that its screen and its report show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from vramwise.fleet.jobs import Job
from vramwise.units import format_bytes

TITLES: Final = (
    "job", "GPUs", "card", "GPU-hours", "wasted", "reason", "SMs", "tensor", "peak memory", "J/token", "J/step", "fits",
)  # fmt: skip
WORDS: Final = frozenset(("job", "card", "reason", "fits"))
"""Every other column has numbers."""
UNKNOWN: Final = "–"


def listed(jobs: Sequence[Job]) -> tuple[list[str], list[list[str]]]:
    """Titles and a row a job, without the columns that none of these jobs has anything in."""
    rows = [_row(job) for job in jobs]
    used = [i for i, title in enumerate(TITLES) if title in _ALWAYS or any(row[i].strip(UNKNOWN) for row in rows)]
    return [TITLES[i] for i in used], [[row[i] for i in used] for row in rows]


_ALWAYS: Final = frozenset(TITLES) - {"J/token", "J/step", "fits"}


def _row(job: Job) -> list[str]:
    wasted = f"{job.wasted_gpu_hours:,.1f} ({100 * job.wasted_gpu_hours / job.gpu_hours:.0f} %)"
    return [
        job.id, f"{job.gpus:,}", job.gpu or UNKNOWN, f"{job.gpu_hours:,.1f}", wasted, job.reason,
        _share(job.sm_active), _share(job.tensor_active),
        UNKNOWN if job.peak_bytes is None else format_bytes(job.peak_bytes),
        _joules(job.joules_per_token), _joules(job.joules_per_step),
        "" if job.smaller_gpu is None else f"{job.smaller_gpu} (by its {job.smaller_by})",
    ]  # fmt: skip


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.0f} %"


def _joules(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.3f}" if value < 1000 else f"{value:,.0f}"
