"""The whole answer of `vramwise fleet`: jobs, what DuckDB says of them, what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from vramwise.fleet.collect import collect
from vramwise.fleet.jobs import Job, jobs_of
from vramwise.fleet.prometheus import Prometheus
from vramwise.fleet.smaller import Spec, with_smaller
from vramwise.fleet.table import SCHEMA, Answers, answers
from vramwise.fleet.windows import HOUR_S, Asked, Window
from vramwise.records import record
from vramwise.units import counted

WHOLLY_SEEN: Final = 0.95


@record
class FleetAnswer:
    """Jobs, those that waste most first. `about` says which server, time and step; it is kept with the table."""

    jobs: Sequence[Job]
    answers: Answers
    about: Mapping[str, Any]

    def to_dict(self) -> dict[str, object]:
        """What `vramwise fleet --json` prints."""
        said = self.answers
        fleet = {**said.totals, "unallocated_gpu_hours": self.about.get("unallocated_gpu_hours", 0.0)}
        return {
            "schema": SCHEMA, **self.about, "fleet": fleet, "by_reason": said.by_reason, "by_owner": said.by_owner,
            "smaller": said.smaller, "days": said.days, "jobs": [job.to_dict() for job in self.jobs],
        }  # fmt: skip


def ask_fleet(
    server: Prometheus, asked: Asked, specs: Sequence[Spec],
    of_windows: Callable[[Sequence[Window]], Iterator[Window]], of_jobs: Callable[[Sequence[Job]], Iterable[Job]],
) -> FleetAnswer:  # fmt: skip
    """Ask a server. Raises SourceError and UsageError as `collect`."""
    found = collect(server, asked, of_windows)
    jobs, nobody = jobs_of(found, asked.step_s)
    jobs, notes = with_smaller(jobs, specs, of_jobs)
    gaps = [
        f"{title}: no samples in {(asked.since_s - covered) / HOUR_S:,.1f} of {asked.since_s / HOUR_S:,.1f} hours; "
        "hours are counted where there are samples"
        for title, covered in found.covered_s.items()
        if asked.since_s - covered > max(asked.step_s, asked.since_s / 1000)
    ]
    partly = [job.seen for job in jobs if job.seen is not None and job.seen < WHOLLY_SEEN]
    if partly:
        gaps.append(
            f"gaps in the samples of {counted(len(partly), 'job')} (down to {100 * min(partly):.0f} % of their GPUs' "
            "time), or GPUs that came later or left earlier: counted is what there are samples of"
        )
    about = {
        "prometheus": server.shown, "since_s": asked.start_s, "until_s": asked.until_s, "step_s": asked.step_s,
        "unallocated_gpu_hours": nobody, "missing": found.missing, "notes": [*found.notes, *gaps, *notes],
    }  # fmt: skip
    return in_order(jobs, about)


def in_order(jobs: Sequence[Job], about: Mapping[str, object]) -> FleetAnswer:
    """The answer of jobs that are known already."""
    said = answers(jobs)
    places = {job_id: place for place, job_id in enumerate(said.ids)}
    return FleetAnswer(sorted(jobs, key=lambda job: places[job.id]), said, about)
