"""One run as it is kept: where it ran, and the terms that its counters determined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from vramwise.records import record
from vramwise.units import format_bytes

TERMS: Mapping[str, str] = {
    "context": "CUDA context and loaded kernels",
    "non_torch": "outside torch's pool",
    "cuda_graphs": "CUDA graphs",
    "communicators": "communicators",
    "nccl": "NCCL",
    "allocator_slack": "allocator slack",
}
"""The terms that are learned, as they are called; only counters that determine exactly one of them teach it."""

RATIOS = frozenset({"cuda_graphs", "allocator_slack"})
"""Terms whose values are ratios; the others are bytes."""


@record
class Term:
    """One learned value: `of` is what it hangs on beside card, program and ranks (a model's type, a constant).

    `precision` is half a unit of the last digit that the counter has.
    """

    name: str
    program: str
    version: str
    value: float
    precision: float
    of: str = ""
    ranks: int = 1

    @property
    def shown(self) -> str:
        """`CUDA graphs × 1.020`, `NCCL 402.00 MiB`."""
        size = f"× {self.value:,.3f}" if self.name in RATIOS else format_bytes(round(self.value), "MiB")
        return f"{TERMS[self.name]} {size}"


@record
class Run:
    """One run. `scenario` and `measured` are what `calibrate export` makes a measured case of."""

    id: str
    command: str
    gpu: str
    terms: tuple[Term, ...]
    date: str = ""
    driver: str = ""
    cuda: str = ""
    scenario: Mapping[str, Any] = field(default_factory=dict, hash=False)
    measured: Mapping[str, int] = field(default_factory=dict, hash=False)
    precision: Mapping[str, int] = field(default_factory=dict, hash=False)


@record
class Kind:
    """What values must share to stand together: card, program and its series, driver branch, CUDA, ranks."""

    term: str
    gpu: str
    program: str
    series: str
    of: str
    ranks: int
    driver: str
    cuda: str

    def __str__(self) -> str:
        words = [self.gpu, f"{self.program} {self.series}".strip(), self.of]
        words += [f"driver {self.driver}" if self.driver else "", f"CUDA {self.cuda}" if self.cuda else ""]
        words += [f"{self.ranks} ranks" if self.ranks > 1 else ""]
        return ", ".join(word for word in words if word)


def series_of(version: str) -> str:
    """The series of a version: its first two numbers.

    >>> series_of("0.11.2+cu128")
    '0.11'
    """
    return ".".join(version.partition("+")[0].split(".")[:2])


def branch_of(driver: str) -> str:
    """The branch of a driver's version: 570 of 570.86.15."""
    return driver.partition(".")[0]


def kind_of(run: Run, term: Term) -> Kind:
    """The kind of a run's term."""
    branch = branch_of(run.driver)
    return Kind(
        term.name, run.gpu, term.program, series_of(term.version), term.of, term.ranks, branch, run.cuda
    )  # fmt: skip


@record
class Site:
    """The runs of one file, in the order in which they came; `shown` names the file for people."""

    shown: str
    runs: tuple[Run, ...] = ()

    def kinds(self) -> dict[Kind, list[tuple[Run, Term]]]:
        """The values of every kind, oldest first."""
        found: dict[Kind, list[tuple[Run, Term]]] = {}
        for run, term in self.all():
            found.setdefault(kind_of(run, term), []).append((run, term))
        return found

    def all(self) -> Iterator[tuple[Run, Term]]:
        """Every term of every run."""
        return ((run, term) for run in self.runs for term in run.terms)
