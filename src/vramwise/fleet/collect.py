"""Asks a server window by window and puts the answers together by job.

All questions of a window belong together: where one is not answered in time, the window is asked for in halves, down
to SHORTEST_S, so that hours and what was lost of them are always of the same time. What is not answered even then is
left out and said; nothing is guessed for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from vramwise.errors import SourceError
from vramwise.fleet.beside import Beside
from vramwise.fleet.exporters import EXPORTERS
from vramwise.fleet.labels import JobLabels, Owner, job_labels, owner_of, workloads
from vramwise.fleet.prometheus import Prometheus, RefusedError, Series, TooMuchError
from vramwise.fleet.questions import Asker, asker_for
from vramwise.fleet.windows import Asked, Window, when
from vramwise.records import record

SHORTEST_S: Final = 3_600
TRIES: Final = 3
"""How often a question is put to a server that was there before and does not answer now."""
MOST_JOBS: Final = 1_000_000
CORE: Final = ("samples", "busy_samples", "engine")
"""Without these there is nothing to say; any other figure may be missing."""
POD_OWNER: Final = "kube_pod_owner"
_OWNER_LABELS: Final = "namespace, pod, exported_namespace, exported_pod, owner_kind, owner_name"


@dataclass(slots=True)
class Tally:
    """What is known of one job: sums over all of its time and by window, largest values, cards."""

    owner: Owner
    sums: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    by_window: dict[int, dict[str, float]] = field(default_factory=dict)
    cards: set[str] = field(default_factory=set)
    command: str = ""

    def add(self, window: Window, name: str, value: float) -> None:
        """Add to a sum."""
        self.sums[name] = self.sums.get(name, 0.0) + value
        of_window = self.by_window.setdefault(window.start_s, {})
        of_window[name] = of_window.get(name, 0.0) + value

    def raise_to(self, name: str, value: float) -> None:
        """Keep the larger value."""
        self.peaks[name] = max(self.peaks.get(name, value), value)


@dataclass(slots=True)
class Collected:
    """Everything that a server told; `missing` is what it did not answer, `notes` what to know of the rest."""

    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    covered_s: dict[str, float] = field(default_factory=dict)

    def tally(self, exporter: str, owner: Owner) -> Tally:
        """The tally of a job. Raises SourceError for more of them than anybody has."""
        found = self.tallies.get((exporter, owner.id))
        if found is None:
            if len(self.tallies) >= MOST_JOBS:
                raise SourceError(f"more than {MOST_JOBS:,} jobs: choose another --job-label")
            found = self.tallies[exporter, owner.id] = Tally(owner)
        return found


@record
class _Question:
    """A query, and whose answer it is."""

    name: str
    query: str
    asker: Asker | None = None


class _NotAnsweredError(TooMuchError):
    """Which question was too much."""

    def __init__(self, name: str, problem: SourceError) -> None:
        super().__init__(str(problem))
        self.name = name


Answers = list[tuple[_Question, list[Series]]]


def collect(server: Prometheus, asked: Asked, progress: Callable[[Sequence[Window]], Iterator[Window]]) -> Collected:
    """Ask for everything.

    Raises SourceError where there is no server or no GPU's metric in it, UsageError for a label that no metric has.
    """
    askers = list(_askers(server, asked))
    if not askers:
        titles = " or ".join(one.title for one in EXPORTERS)
        raise SourceError(f"{server.shown}: no metric of {titles} from {when(asked.start_s)} to {when(asked.until_s)}")
    found = Collected(notes=[note for asker in askers for note in _unseen(asker)])
    beside = Beside(server, asked, found.notes)
    asking = _Asking(server, askers, beside, found)
    try:
        for window in progress(asked.windows):
            asking.window(window)
    except _GoneError as problem:
        found.missing.append(f"everything from {when(problem.window.start_s)} on: {problem}")
    if not any(tally.sums for tally in found.tallies.values()):
        raise SourceError(found.missing[0] if found.missing else f"{server.shown}: no samples in this time")
    for name in asking.given_up:
        for tally in found.tallies.values():
            for sums in (tally.sums, tally.peaks, *tally.by_window.values()):
                sums.pop(name, None)
    return found


class _GoneError(SourceError):
    """A server that was there and does not answer any more."""

    def __init__(self, window: Window, problem: SourceError) -> None:
        super().__init__(str(problem))
        self.window = window


def _askers(server: Prometheus, asked: Asked) -> Iterator[Asker]:
    for exporter in EXPORTERS:
        names = server.metric_names(exporter.pattern, asked.start_s, asked.until_s)
        asker = asker_for(exporter, names, JobLabels(), asked.step_s)
        if asker is not None:
            present = server.label_names(asker.engine_metric, asked.start_s, asked.until_s)
            yield Asker(exporter, asker.prefix, asker.names, job_labels(present, asked.job_labels), asked.step_s)


def _unseen(asker: Asker) -> Iterator[str]:
    one = asker.exporter
    if not asker.has(one.sm):
        why = f" ({one.sm[0].name} is not exported)" if one.sm else ""
        yield (
            f"{one.title} does not say how much of a card kernels fill{why}: hours lost to communication and to small "
            "kernels are not seen"
        )
    elif not asker.has(one.link):
        yield f"{one.title}: no counter of links is exported, so communication and small kernels are not told apart"
    if not asker.labels.names:
        yield f"{one.title}: no label names a job; --job-label chooses one"


@dataclass(slots=True)
class _Asking:
    """Asks the questions of one window after the other and folds the answers in."""

    server: Prometheus
    askers: Sequence[Asker]
    beside: Beside
    found: Collected
    given_up: set[str] = field(default_factory=set)

    def window(self, window: Window) -> None:
        """Ask for a window, in parts where it is too much at once. Raises _GoneError."""
        parts = [window]
        failed: set[str] = set()
        while parts:
            part = parts.pop()
            try:
                answers = [(question, self._answer(question, part)) for question in self._questions(part)]
            except _NotAnsweredError as problem:
                if part.width_s >= 2 * max(SHORTEST_S, self.askers[0].step_s):
                    parts += reversed(part.halves(self.askers[0].step_s))
                elif problem.name in CORE:
                    self.found.missing.append(f"{when(part.start_s)} to {when(part.end_s)}: {problem}")
                else:
                    if problem.name in failed:
                        self._give_up(problem.name, problem)
                    failed.add(problem.name)
                    parts.append(part)
            else:
                self._fold(answers, window, part)

    def _questions(self, part: Window) -> Iterator[_Question]:
        if any(asker.labels.pod for asker in self.askers):
            selected = f'{POD_OWNER}{{owner_is_controller="true"}}[{part.width_s}s]'
            yield _Question("owners of pods", f"group by ({_OWNER_LABELS}) (last_over_time({selected}))")
        for asker in self.askers:
            asked = {**asker.sums(part.width_s), **asker.peaks(part.width_s), "covered": asker.covered(part.width_s)}
            yield from (_Question(name, query, asker) for name, query in asked.items())
        yield from (_Question(name, query) for name, query in self.beside.queries(part.width_s))

    def _answer(self, question: _Question, part: Window) -> list[Series]:
        if question.name in self.given_up:
            return []
        for tries_left in reversed(range(TRIES)):
            try:
                return self.server.instant(question.query, part.end_s)
            except TooMuchError as problem:
                raise _NotAnsweredError(question.name, problem) from None
            except RefusedError as problem:
                self._give_up(question.name, problem)
                return []
            except SourceError as problem:
                if not tries_left:
                    raise _GoneError(part, problem) from None
        raise AssertionError("unreachable")

    def _give_up(self, name: str, problem: SourceError) -> None:
        self.given_up.add(name)
        self.found.missing.append(f"{name.replace('_', ' ')}: {problem}")

    def _fold(self, answers: Answers, window: Window, part: Window) -> None:
        pods = [one.labels for question, series in answers if question.name == "owners of pods" for one in series]
        owners = workloads(pods)
        for question, series in answers:
            if question.asker is not None:
                _fold_gpus(self.found, question.name, question.asker, series, owners, window, part)
        for question, series in answers:
            if question.asker is None and question.name != "owners of pods":
                for one in series:
                    self._fold_beside(question.name, one, owners, window)

    def _fold_beside(self, name: str, one: Series, owners: Mapping[tuple[str, str], str], window: Window) -> None:
        labels, kind = self.beside.meaning(name)
        owner = owner_of(one.labels, labels, owners)
        for asker in self.askers:
            tally = self.found.tallies.get((asker.exporter.title, owner.id)) if owner.id else None
            if tally is None:
                continue
            if kind == "command":
                tally.command = tally.command or self.beside.command_in(one.labels)
            else:
                tally.add(window, kind, one.value)


def _fold_gpus(
    found: Collected, name: str, asker: Asker, series: Sequence[Series], owners: Mapping[tuple[str, str], str],
    window: Window, part: Window,
) -> None:  # fmt: skip
    title = asker.exporter.title
    if name == "covered":
        for one in series:
            found.covered_s[title] = found.covered_s.get(title, 0.0) + min(one.value * asker.step_s, part.width_s)
        return
    gpus: dict[str, float] = {}
    is_peak = name in asker.peaks(part.width_s)
    for one in series:
        owner = owner_of(one.labels, asker.labels, owners)
        tally = found.tally(title, owner)
        tally.cards |= _cards(one, asker.exporter.card_labels)
        if name == "gpus":  # pods of one workload are several series
            gpus[owner.id] = gpus.get(owner.id, 0.0) + one.value
        elif is_peak:
            tally.raise_to(name, one.value)
        else:
            tally.add(window, name, one.value)
    for job, count in gpus.items():
        found.tallies[title, job].raise_to("gpus", count)


def _cards(series: Series, labels: Sequence[str]) -> set[str]:
    card = next((series.labels[key] for key in labels if series.labels.get(key)), "")
    part = series.labels.get("GPU_I_PROFILE", "")
    return {f"{card} MIG {part}" if part and part != card else card} if card else set()
