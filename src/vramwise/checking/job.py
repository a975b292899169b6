"""One answer in one record: the verdict's word, its probability, need and room, and the smallest change that fits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vramwise.errors import Doubt, LeftOut, Misspelt, ScenarioError, UsageError, clipped
from vramwise.records import record
from vramwise.result import VERDICT_WORDS, Result, Verdict, VerdictWord
from vramwise.scenario import Scenario
from vramwise.scenario.definition import KINDS, TABLES, table_of
from vramwise.units import format_bytes
from vramwise.verdict import Spread, percent

What = Scenario | Mapping[str, object] | str | Path | Sequence[str]


@record
class Check:
    """What `vramwise check` prints.

    `change` holds the values of the smallest change that fits and `command` the estimate of the changed scenario; both
    are None where it fits anyway or where no change is enough. `unread` is what nobody understood of the command,
    `spread` what the program leaves on the host so that the rest fits, and `doubts` why it may fail though it fits, or
    be about another model than the one that was meant.
    """

    word: VerdictWord
    probability: float
    need_bytes: int
    room_bytes: int
    change: Mapping[str, object] | None = None
    command: str | None = None
    name: str = ""
    unread: tuple[str, ...] = ()
    spread: str = ""
    doubts: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """True for *fits* and for *tight*."""
        return self.word != "does not fit"

    def to_dict(self) -> dict[str, object]:
        """The keys that `vramwise check --json` prints."""
        return {
            "word": self.word,
            "probability": self.probability,
            "need_bytes": self.need_bytes,
            "room_bytes": self.room_bytes,
            "change": None if self.change is None else dict(self.change),
            "command": self.command,
        }

    def line(self) -> str:
        """The same for a person."""
        need, room = format_bytes(self.need_bytes), format_bytes(self.room_bytes)
        text = f"{self.word} ({percent(self.probability)}): needs {need}, room {room}"
        if self.change is not None:
            text += f"; fits with {', '.join(_said(*pair) for pair in self.change.items() if pair[1] != ())}"
        elif self.word != "fits":
            text += "; no single change makes it fit"
        text += f"; {self.spread}" if self.spread else ""
        return f"{self.name}: {text}" if self.name else text


def check(what: What, **settings: object) -> Check:
    """Whether a job fits on its card, or on this machine's where it names none.

    `what`: a command line (`"vllm serve MODEL …"`, or its words), a file (a scenario, a tool's configuration, a
    script), a Scenario or the same as a table, or a model whose scenario the keywords say. Keywords override what a
    command or a file says: `check("train.yaml", gpu="h100")`. Of several programs in a file the worst is told.

    Raises UsageError for what is not understood, and where there is no card to hold it against; SourceError,
    UnknownNameError and UnsupportedModelError as `estimate`.
    """
    return worst(judged(scenario, name) for name, scenario in _scenarios(what, settings))


def fits(what: What, **settings: object) -> bool:
    """Whether every program of it fits well; no change is looked for where one does not. Raises what `check` raises."""
    return all(_verdict(scenario, name)[2].word == "fits" for name, scenario in _scenarios(what, settings))


def judged(scenario: Scenario, name: str = "") -> Check:
    """The check of one scenario. Raises UsageError where there is no verdict."""
    from vramwise.estimation import estimate
    from vramwise.planner import suggestions
    from vramwise.scenario.words import command_of

    scenario, result, verdict, room = _verdict(scenario, name)
    change = command = None
    if verdict.word != "fits":
        better = (
            one for one in suggestions(scenario, result, estimate)
            if one.verdict is not None and _rank(one.verdict.word) < _rank(verdict.word)
        )  # fmt: skip
        best = next(better, None)
        if best is not None:
            change = dict(best.change.values)
            command = command_of(best.change.of(scenario))
    unread = tuple(note for note in result.notes if isinstance(note, LeftOut))
    spread = next((reason for reason in verdict.reasons if isinstance(reason, Spread)), _host(scenario, result))
    need = int(result.needed.expected)
    doubts = tuple(note for note in result.notes if isinstance(note, Doubt))
    return Check(verdict.word, verdict.probability, need, room, change, command, name, unread, spread, doubts)


def _verdict(scenario: Scenario, name: str) -> tuple[Scenario, Result, Verdict, int]:
    """The scenario on its card, its answer, verdict and room. Raises UsageError where there is no verdict."""
    from vramwise.estimation import estimate

    scenario = with_a_card(scenario)
    result = estimate(scenario)
    misspelt = next((note for note in result.notes if isinstance(note, Misspelt)), None)
    if misspelt is not None:
        raise UsageError(f"{name + ': ' if name else ''}not understood: {misspelt}")
    if result.verdict is None or result.capacity is None:
        raise UsageError(f"{name + ': ' if name else ''}cannot be judged: {_why(scenario, result)}")
    return scenario, result, result.verdict, result.capacity.usable_bytes


def worst(checks: Iterable[Check]) -> Check:
    """The one that fits least."""
    return min(checks, key=lambda one: (-_rank(one.word), one.probability))


def with_a_card(scenario: Scenario) -> Scenario:
    """On the card here where the scenario names none. Raises ScenarioError where there is none either."""
    from vramwise.estimation import on_this_machine

    named = (scenario.gpu, scenario.gpus, scenario.gpu_total_bytes, scenario.gpu_free_bytes)
    if not any(named) and scenario.num_gpus:
        scenario = scenario.replace(gpu="here")
    return on_this_machine(scenario)


def _scenarios(what: What, settings: Mapping[str, object]) -> list[tuple[str, Scenario]]:
    """The scenarios that are meant, by name."""
    if isinstance(what, Scenario):
        if settings:
            raise ScenarioError(
                next(iter(settings)), "keywords go with a command, a file or a model: replace() the key"
            )
        return [("", what)]
    if isinstance(what, Mapping):
        return [("", _merged(what, settings))]
    if isinstance(what, str | Path):
        if os.path.isfile(what):
            return _of_file(str(what), settings)
        if isinstance(what, Path):
            raise UsageError(f"no such file: {clipped(str(what))}")
        from vramwise.interop.files.pasted_commands import words_of_command

        words = words_of_command(what)
        if len(words) == 1:
            from vramwise.scenario.keywords import scenario_of

            return [("", scenario_of(what, settings))]
    else:
        words = list(what)
    from vramwise.interop.launch import read_command

    launch = read_command(words)
    scenario = _merged(launch.scenario, settings)
    return [("", scenario.replace(notes=(*scenario.notes, *launch.notes)))]


def _of_file(path: str, settings: Mapping[str, object]) -> list[tuple[str, Scenario]]:
    from vramwise.interop.files.kinds import is_tools_file
    from vramwise.scenario import read_table_file

    if not is_tools_file(path):
        return [("", _merged(read_table_file(path), settings))]
    from vramwise.interop.files.launches import read_files

    found = []
    for one in read_files([path]):
        scenario = _merged(one.launch.scenario, settings)
        found.append((one.name, scenario.replace(notes=(*scenario.notes, *one.launch.notes))))
    return found


def _merged(data: Mapping[str, object], settings: Mapping[str, object]) -> Scenario:
    """A scenario's table with flat keys over it. Raises ScenarioError for a key that is none or no task's."""
    top = {key: value for key, value in settings.items() if key in KINDS[Scenario] or key in TABLES}
    inner = {key: value for key, value in settings.items() if key not in top}
    merged = {**data, **top}
    if inner:
        table = table_of(str(merged.get("task")))
        own = merged.get(table) or {}
        merged[table] = {**(own if isinstance(own, Mapping) else {}), **inner}
    return Scenario.from_dict(merged)


def _why(scenario: Scenario, result: Result) -> str:
    if scenario.num_gpus == 0:
        return "num_gpus is 0, nothing runs on a GPU"
    if result.capacity is None:
        return "the memory of its card is not known (--gpu-total-bytes says it)"
    return next(iter(result.notes), "the need is known in part only")


def _host(scenario: Scenario, result: Result) -> str:
    """What a training offloads, where nobody stated whether the host has room for it."""
    asked = result.quantities.get("host_memory")
    if asked is None or scenario.host_memory_bytes or not asked.expected:
        return ""
    return f"{format_bytes(int(asked.expected))} of host memory on a node"


def _rank(word: VerdictWord) -> int:
    return VERDICT_WORDS.index(word)


def _said(key: str, value: object) -> str:
    if isinstance(value, bool):
        return f"{key} {str(value).lower()}"
    return f"{key} {','.join(map(str, value)) if isinstance(value, tuple | list) else value}"
