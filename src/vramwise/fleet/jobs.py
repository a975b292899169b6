"""One row a job: its hours, what was lost and why, memory, energy. The parts of the hours add up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from vramwise.errors import VramwiseError, clipped
from vramwise.fleet.collect import Collected, Tally
from vramwise.fleet.windows import HOUR_S
from vramwise.records import names_of, record

ENOUGH: Final = 0.8
"""SM activity below it is no effective use, as NVIDIA's documentation of DCGM's profiling metrics has it."""
FAR_BELOW: Final = 0.5
"""Assumed: of a card's memory, what a job stays under to have a smaller card looked for."""
REASONS: Final = ("idle", "launch-bound", "communication", "memory", "none")


@record
class Lost:
    """GPU-hours that brought nothing, by cause; their sum is what is wasted. None: the counters do not tell."""

    idle: float
    launch: float
    communication: float | None

    @property
    def hours(self) -> float:
        return self.idle + self.launch + (self.communication or 0.0)


@record
class Job:
    """A row of the table; what nobody exported is None. Shares are of all of the job's GPU time."""

    id: str
    kind: str
    namespace: str
    user: str
    gpu: str
    gpus: int
    first_s: float
    last_s: float
    seen: float | None
    """Share of its GPUs' time, from the first sample to the last, that has samples."""
    gpu_hours: float
    idle_gpu_hours: float
    launch_bound_gpu_hours: float
    communication_gpu_hours: float | None
    wasted_gpu_hours: float
    reason: str
    engine_active: float
    sm_active: float | None
    tensor_active: float | None
    dram_active: float | None
    link_bytes_per_s: float | None
    peak_bytes: int | None
    card_bytes: int | None
    energy_j: float | None
    tokens: float | None
    steps: float | None
    joules_per_token: float | None
    joules_per_step: float | None
    smaller_gpu: str | None
    smaller_by: str | None
    command: str
    days: tuple[Mapping[str, float], ...]

    def to_dict(self) -> dict[str, object]:
        """What `vramwise fleet --json` prints of a job."""
        return {name: getattr(self, name) for name in names_of(Job)} | {"days": [dict(day) for day in self.days]}


def jobs_of(found: Collected, step_s: int) -> tuple[list[Job], float]:
    """The jobs, and the GPU-hours that no job had."""
    jobs, nobody_hours = [], 0.0
    for tally in found.tallies.values():
        if not tally.sums.get("samples"):
            continue
        if tally.owner.id:
            jobs.append(_job(tally, step_s))
        else:
            nobody_hours += tally.sums["samples"] * step_s / HOUR_S
    return jobs, nobody_hours


def _job(tally: Tally, step_s: int) -> Job:
    sums, peaks = tally.sums, tally.peaks
    # a GPU that ran nothing has no sample of busy SMs, whatever is exported
    knows = {"sm": "sm" in sums or not sums.get("engine"), "link": "link_bytes" in sums}
    samples = sums["samples"]
    gpus = max(1, round(peaks.get("gpus", 1)))
    is_alone = peaks.get("gpus") == 1
    lost = _lost(sums, step_s, knows, is_alone)
    hours = samples * step_s / HOUR_S
    energy = sums.get("energy", sums["power"] * step_s if "power" in sums else None)
    card, memory = _card(tally)
    gpu_seconds = samples * step_s

    first_s, last_s = -peaks.get("first", 0.0), peaks.get("last", 0.0)
    told = {"gpus", "first", "last"} <= peaks.keys()
    seen = min(1.0, gpu_seconds / (gpus * max(last_s - first_s + step_s, step_s))) if told else None

    def share(name: str) -> float | None:
        return sums[name] / samples if name in sums else None

    def per(name: str) -> float | None:
        return energy / sums[name] if energy is not None and sums.get(name, 0) > 0 else None

    return Job(
        id=tally.owner.id, kind=tally.owner.kind, namespace=tally.owner.namespace, user=tally.owner.user, gpu=card,
        gpus=gpus, first_s=first_s, last_s=last_s, seen=seen, gpu_hours=hours,
        idle_gpu_hours=lost.idle, launch_bound_gpu_hours=lost.launch, communication_gpu_hours=lost.communication,
        wasted_gpu_hours=lost.hours, reason=_reason(lost, hours), engine_active=sums.get("engine", 0.0) / samples,
        sm_active=sums.get("sm", 0.0) / samples if knows["sm"] else None, tensor_active=share("tensor"),
        dram_active=share("dram"),
        link_bytes_per_s=sums["link_bytes"] / gpu_seconds if "link_bytes" in sums else None,
        peak_bytes=round(peaks["peak_bytes"]) if "peak_bytes" in peaks else None, card_bytes=memory, energy_j=energy,
        tokens=sums.get("tokens"), steps=sums.get("steps"), joules_per_token=per("tokens"),
        joules_per_step=per("steps"), smaller_gpu=None, smaller_by=None, command=tally.command,
        days=tuple(_days(tally, step_s, knows, is_alone)),
    )  # fmt: skip


def _lost(sums: Mapping[str, float], step_s: int, knows: Mapping[str, bool], is_alone: bool) -> Lost:
    """Cuts the hours. A card that is alone exchanges nothing: what its kernels leave of it is small kernels."""
    busy = sums.get("busy_samples", 0.0)
    engine = sums.get("engine", 0.0)
    idle, gaps = sums.get("samples", 0.0) - busy, max(0.0, busy - engine)
    empty = max(0.0, engine - sums.get("sm", 0.0)) if knows["sm"] else 0.0
    linked = min(sums.get("linked", 0.0), empty) if not is_alone else 0.0
    hours = step_s / HOUR_S
    is_told = knows["sm"] and knows["link"]
    return Lost(idle * hours, (gaps + empty - linked) * hours, linked * hours if is_told else None)


def _reason(lost: Lost, hours: float) -> str:
    """The largest loss where the losses are more than effective use allows."""
    if lost.hours < (1 - ENOUGH) * hours:
        return "none"
    by_name = {"idle": lost.idle, "launch-bound": lost.launch, "communication": lost.communication or 0.0}
    return max(by_name, key=by_name.__getitem__)


def _days(tally: Tally, step_s: int, knows: Mapping[str, bool], is_alone: bool) -> Iterator[dict[str, float]]:
    for start_s, sums in sorted(tally.by_window.items()):
        lost = _lost(sums, step_s, knows, is_alone)
        yield {
            "start_s": float(start_s), "gpu_hours": sums.get("samples", 0.0) * step_s / HOUR_S,
            "idle_gpu_hours": lost.idle, "launch_bound_gpu_hours": lost.launch,
            "communication_gpu_hours": lost.communication or 0.0,
        }  # fmt: skip


def _card(tally: Tally) -> tuple[str, int | None]:
    """The card by its id where it is known, else as the exporter calls it; and its memory."""
    told = round(tally.peaks["card_bytes"]) if "card_bytes" in tally.peaks else None
    names = []
    for name in sorted(tally.cards)[:8]:
        known, memory = _known_card(name, told)
        names.append(known)
        told = told or memory
    return ", ".join(dict.fromkeys(names)), told


@lru_cache(4096)
def _known_card(name: str, told: int | None) -> tuple[str, int | None]:
    """The id of a card and its memory: a hundred thousand jobs run on a few kinds."""
    from vramwise.hardware.lookup import find_installed_gpu

    try:
        gpu = find_installed_gpu(name, told).gpu
    except VramwiseError:
        return clipped(name), None
    return gpu.id, gpu.memory_total_bytes
