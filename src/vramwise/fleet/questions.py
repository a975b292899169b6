"""The queries for one window, each an aggregate that the server works out: what comes back is one number a job.

A sample of a GPU is judged by itself. Its time is cut so that the parts add up:

    1 = idle (no kernel at all)  +  gaps between kernels  +  SMs without work  +  SMs with a warp

Idle is a sample whose engine was active for less than IDLE of the time. What kernels left of the card counts as
communication where the links carried LINK_BYTES_PER_S or more at that time, as small kernels where they did not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from vramwise.fleet.exporters import Exporter, Metric, prefix_of, present
from vramwise.fleet.labels import JobLabels
from vramwise.records import record
from vramwise.units import GB

IDLE: Final = 0.05
"""Assumed: a driver's own work (a monitor, a health check) keeps an engine active for less."""
LINK_BYTES_PER_S: Final = GB
"""Assumed: a card that exchanges gradients or activations sends and receives more, one that loads data less."""


@record
class Asker:
    """Writes the queries for an exporter's metrics as one server has them."""

    exporter: Exporter
    prefix: str
    names: frozenset[str]
    labels: JobLabels
    step_s: int

    def has(self, role: Sequence[Metric]) -> bool:
        """Whether the server has a metric of this role."""
        return bool(present(role, self.names, self.prefix))

    @property
    def engine_metric(self) -> str:
        """The metric whose series say which jobs there were."""
        return present(self.exporter.engine, self.names, self.prefix)[0].name

    def sums(self, width_s: int) -> dict[str, str]:
        """Queries whose answers are added up over windows, and over series of one job."""
        has, window = self.has, self._window(width_s)
        one = self.exporter
        engine, busy = self._first(one.engine), f"({self._first(one.engine)} >= {IDLE})"
        found = {
            "samples": f"count_over_time(({engine}){window})",
            "busy_samples": f"count_over_time({busy}{window})",
            "engine": f"sum_over_time({busy}{window})",
        }
        if has(one.sm):
            sm = self._first(one.sm)
            found["sm"] = f"sum_over_time(({sm} and {busy}){window})"
            if has(one.link):
                linked = f"(clamp_min({busy} - {sm}, 0) and ({self._all(one.link)} >= {LINK_BYTES_PER_S}))"
                found["linked"] = f"sum_over_time({linked}{window})"
        for name, role in (("tensor", one.tensor), ("dram", one.dram), ("power", one.power)):
            if has(role):
                found[name] = f"sum_over_time(({self._first(role)}){window})"
        if has(one.link):
            found["link_bytes"] = f"sum_over_time(({self._all(one.link)}){window}) * {self.step_s}"
        elif has(one.link_counter):
            found["link_bytes"] = self._grown(one.link_counter, width_s, by="link_index")
        if has(one.energy):
            found["energy"] = self._grown(one.energy, width_s)
        by = ", ".join(self.labels.names)
        return {name: f"sum by ({by}) ({text})" for name, text in found.items()}

    def peaks(self, width_s: int) -> dict[str, str]:
        """Queries of which the largest answer of a job counts."""
        one, window = self.exporter, self._window(width_s)
        engine = self._first(one.engine)
        jobs = ", ".join(self.labels.names)
        with_card = ", ".join((*self.labels.names, *one.card_labels))
        found = {
            "gpus": f"count by ({jobs}) (count_over_time(({engine}){window}))",
            "last": f"max by ({jobs}) (max_over_time(timestamp({engine}){window}))",
            "first": f"-min by ({jobs}) (min_over_time(timestamp({engine}){window}))",
        }
        used = present(one.used, self.names, self.prefix)
        if used:
            peak = f"max_over_time({used[0].name}[{width_s}s]) * {used[0].scale!r}"
            found["peak_bytes"] = f"max by ({with_card}) ({peak})"
        total = self._total()
        if total is not None:
            found["card_bytes"] = f"max by ({with_card}) (max_over_time(({total}){window}))"
        return found

    def covered(self, width_s: int) -> str:
        """How many steps of the window have any sample at all."""
        return f"count_over_time((count({self._first(self.exporter.engine)})){self._window(width_s)})"

    def _window(self, width_s: int) -> str:
        """The steps of a window, its first moment left out: Prometheus 2 counts both ends, 3 the last one alone."""
        return f"[{width_s - 1}s:{self.step_s}s]"

    def _by(self, *more: str) -> str:
        return ", ".join(dict.fromkeys((*self.labels.names, *self.exporter.gpu_labels, *more)))

    def _first(self, role: Sequence[Metric], *more: str) -> str:
        """A role once a GPU and job, however many exporters or replicas of the server saw it; of a GPU's metrics the
        first, since cards of one cluster do not all have the same."""
        found = [
            f"max by ({self._by(*more)}) ({metric.name})" + ("" if metric.scale == 1 else f" * {metric.scale!r}")
            for metric in present(role, self.names, self.prefix)
        ]
        return found[0] if len(found) == 1 else f"({' or '.join(found)})"

    def _all(self, role: Sequence[Metric], *more: str) -> str:
        """The sum of those metrics of a role that a GPU has."""
        found = present(role, self.names, self.prefix)
        each = f'{{__name__=~"{"|".join(one.name for one in found)}"}}'
        scaled = "" if found[0].scale == 1 else f" * {found[0].scale!r}"
        return f"sum by ({self._by(*more)}) (max by (__name__, {self._by(*more)}) ({each})){scaled}"

    def _grown(self, role: Sequence[Metric], width_s: int, by: str = "") -> str:
        """How much a counter grew, over resets too."""
        inner = self._first(role, *filter(None, [by]))
        return f"increase(({inner})[{width_s}s:{self.step_s}s])"

    def _total(self) -> str | None:
        """A card's memory: as the exporter says it, else its parts together."""
        one = self.exporter
        if self.has(one.total):
            return self._first(one.total, *one.card_labels)
        if self.has(one.used) and self.has(one.rest):
            return self._all((*one.used, *one.rest), *one.card_labels)
        return None


def asker_for(exporter: Exporter, names: Collection[str], labels: JobLabels, step_s: int) -> Asker | None:
    """What asks for an exporter's metrics; None where the server has none that says when a GPU worked."""
    prefix = prefix_of(exporter, names)
    return None if prefix is None else Asker(exporter, prefix, frozenset(names), labels, step_s)
