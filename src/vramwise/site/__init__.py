"""What was learned on one's own machines, and how an estimate uses it.

A run that was measured, compared or watched with `--calibrate` leaves the terms that its counters determine in one
small file (file.py). `learned` is what an estimate asks for such a term; without a file it costs nothing.

    run          one run and the terms that it showed; terms of a kind are those that may be put together
    spread       from the values of several runs to a value with its interval
    file         reading and writing the file

An estimate asks for every term that could have been learned; what it asks for is also how a run's counters are sorted
into terms (`asking`), so that exactly those terms are learned that an estimate uses.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from vramwise.errors import UsageError
from vramwise.records import record

if TYPE_CHECKING:
    from vramwise.site.run import Kind, Site
    from vramwise.site.spread import Interval

__all__ = [
    "THE_USERS",
    "Asked",
    "InForce",
    "Learned",
    "asking",
    "chosen_site",
    "is_in_force",
    "kept_in_force",
    "learned",
    "site_in_use",
    "using",
]

VARIABLE: Final = "VRAMWISE_SITE"
THE_USERS: Final = "the user's own"
"""Stands for the file of `--site`, of VRAMWISE_SITE, or of the user's configuration."""
T = TypeVar("T")
P = ParamSpec("P")


@record
class Asked:
    """A term that an estimate hangs on: where it would have been learned, and the shipped constant."""

    term: str
    gpu: str
    program: str
    version: str | None
    of: str
    ranks: int
    shipped: Interval


@record
class Learned:
    """A value with its interval from `runs` runs, in place of the shipped one."""

    asked: Asked
    kind: Kind
    low: float
    expected: float
    high: float
    runs: int
    left_out: int

    @property
    def ends(self) -> Interval:
        return self.low, self.expected, self.high

    @property
    def said(self) -> str:
        """`calibrated here: 3 runs`."""
        return f"calibrated here: {_runs(self.runs)}"

    @property
    def source(self) -> str:
        """Where the value comes from, for a term of the result."""
        return f"{_runs(self.runs)} on this site: {self.kind}"

    def to_dict(self) -> dict[str, Any]:
        """What the site changed, as the result's JSON says it."""
        before, now = self.asked.shipped, self.ends
        ends = ("low", "expected", "high")
        return {
            "term": self.kind.term, "gpu": self.kind.gpu, "program": self.kind.program, "series": self.kind.series,
            "of": self.kind.of, "ranks": self.kind.ranks, "driver": self.kind.driver, "cuda": self.kind.cuda,
            "runs": self.runs, "left_out": self.left_out, "shipped": dict(zip(ends, before, strict=True)),
            "learned": dict(zip(ends, now, strict=True)),
        }  # fmt: skip


@record
class InForce:
    """A site in use by one estimate, on a card with this driver: what was asked for by term, what of it was learned."""

    site: Site
    driver: str | None = None
    asked: dict[str, Asked] = field(default_factory=dict, hash=False)
    found: dict[str, Learned] = field(default_factory=dict, hash=False)

    def look_up(self, asked: Asked) -> Learned | None:
        """The newest kind that fits. A version that is not stated is that of the newest run."""
        from vramwise.site.run import branch_of, series_of

        self.asked.setdefault(asked.term, asked)
        series = None if asked.version is None else series_of(asked.version)
        fitting = [
            (kind, values)
            for kind, values in self._kinds().items()
            if (kind.term, kind.gpu, kind.program, kind.of, kind.ranks)
            == (asked.term, asked.gpu, asked.program, asked.of, asked.ranks)
            and series in (None, kind.series)
            and (not self.driver or branch_of(self.driver) == kind.driver)
        ]
        if not fitting:
            return None
        from vramwise.site.spread import spread_of

        order = {run.id: i for i, run in enumerate(self.site.runs)}
        kind, values = max(fitting, key=lambda one: order[one[1][-1][0].id])
        spread = spread_of(
            [term.value for _, term in values], [term.precision for _, term in values], asked.shipped
        )  # fmt: skip
        found = Learned(
            asked, kind, spread.low, spread.expected, spread.high, len(spread.used), len(spread.left_out)
        )  # fmt: skip
        self.found.setdefault(asked.term, found)
        return found

    def notes(self) -> tuple[str, ...]:
        """What was used, and what lies there for other versions and was kept apart."""
        from vramwise.site.run import TERMS, series_of

        used = [
            f"{TERMS[one.kind.term]} ({_runs(one.runs)}{f', {one.left_out} left out' if one.left_out else ''})"
            for one in self.found.values()
        ]
        said = [f"calibrated here: {', '.join(used)}; {self.site.shown}"] if used else []
        apart: dict[str, None] = {}
        for asked in self.asked.values():
            if asked.term not in self.found and asked.version is not None:
                for kind in self._kinds():
                    if (kind.term, kind.gpu, kind.program) == (asked.term, asked.gpu, asked.program):
                        apart[f"{kind.program} {kind.series}"] = None
        mine = {f"{asked.program} {series_of(asked.version or '')}" for asked in self.asked.values()}
        others = [name for name in apart if name not in mine]
        if others:
            said.append(f"{self.site.shown} has runs of {', '.join(others)} on this card, which are kept apart")
        return tuple(said)

    def _kinds(self) -> Mapping[Kind, list[tuple[Any, Any]]]:
        return _kinds_of(self.site)


_in_force: ContextVar[InForce | None] = ContextVar("vramwise_site", default=None)
_chosen: ContextVar[str | None] = ContextVar("vramwise_chosen_site", default=THE_USERS)
_kinds_seen: dict[int, tuple[Site, Mapping[Kind, list[tuple[Any, Any]]]]] = {}


def learned(
    term: str, shipped: Interval, *, gpu: str | None, program: str, version: str | None = None, of: str = "",
    ranks: int = 1,
) -> Learned | None:  # fmt: skip
    """What the site in use knows of a term; None without one, or where no run showed it."""
    force = _in_force.get()
    if force is None or gpu is None:
        return None
    return force.look_up(Asked(term, gpu, program, version, of, ranks, shipped))


def is_in_force() -> bool:
    """Whether an estimate asks a site now."""
    return _in_force.get() is not None


@contextmanager
def using(site: Site | None, driver: str | None = None) -> Iterator[InForce | None]:
    """Estimates inside use this site, for a card with this driver where that is known."""
    force = None if site is None else InForce(site, driver)
    token = _in_force.set(force)
    try:
        yield force
    finally:
        _in_force.reset(token)


@contextmanager
def asking() -> Iterator[InForce]:
    """Estimates inside use no site, and what they would have asked one for is kept."""
    from vramwise.site.run import Site

    with using(Site("nothing")) as force:
        assert force is not None
        yield force


def kept_in_force(late: Callable[P, T]) -> Callable[P, T]:
    """`late` with the site that is in use now, for what an estimate works out when it is read."""
    force = _in_force.get()
    if force is None:
        return late

    def run(*args: P.args, **settings: P.kwargs) -> T:
        token = _in_force.set(force)
        try:
            return late(*args, **settings)
        finally:
            _in_force.reset(token)

    return run


@contextmanager
def chosen_site(path: str | None = None, *, off: bool = False) -> Iterator[None]:
    """Estimates inside take the site of this file (None: the user's own), or none."""
    token = _chosen.set(None if off else path or THE_USERS)
    try:
        yield
    finally:
        _chosen.reset(token)


def site_in_use(given: str | os.PathLike[str] | Site | None = THE_USERS) -> Site | None:
    """The site for an estimate: that of a file, that of `chosen_site`, the user's own where there is one, or None.

    Raises SourceError for a file that was named and is not there, UsageError for one that is none of ours.
    """
    if given is None or not isinstance(given, str | os.PathLike):
        return given
    name = _chosen.get() if given == THE_USERS else os.fspath(given)
    if name is None:
        return None
    named = name if name != THE_USERS else os.environ.get(VARIABLE)
    if named == "":
        return None
    try:
        seen = os.stat(named or users_file())
    except (OSError, ValueError):
        if named is None:
            return None
        seen = None
    from vramwise.site.file import read_site

    return read_site(named or users_file(), seen)


def site_file(path: str | None = None, *, off: bool = False) -> str | None:
    """The file, from anywhere, that estimates here take what was learned from; None where they take nothing."""
    named = None if off else path or os.environ.get(VARIABLE)
    if off or named == "":
        return None
    where = os.path.abspath(named or users_file())
    return where if named or os.path.lexists(where) else None


def file_to_write(given: str | os.PathLike[str] | None) -> str:
    """The file that new runs go into. Raises UsageError where none is named and VRAMWISE_SITE is empty."""
    if given is not None:
        return os.fspath(given)
    named = os.environ.get(VARIABLE)
    if named == "":
        raise UsageError(f"{VARIABLE} is empty, so that there is no site file: name one")
    return named or users_file()


def users_file() -> str:
    """`site.toml` in the user's configuration, by the XDG base directory specification."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):  # the specification: a relative path is ignored
        base = os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "vramwise", "site.toml")


def _kinds_of(site: Site) -> Mapping[Kind, list[tuple[Any, Any]]]:
    known = _kinds_seen.get(id(site))
    if known is None or known[0] is not site:
        _kinds_seen.clear()
        _kinds_seen[id(site)] = known = site, site.kinds()
    return known[1]


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
