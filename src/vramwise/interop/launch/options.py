"""Options of training programs (training.csv), from their command lines and their configuration files alike.

training.csv lists, by program, each option, how many values it takes (0, 1, `?` none or a switch's, `~` none or
one, `+` any number), the key
of the scenario that it sets (`=`: read in code; empty: none) and what is not counted, if it would move memory. An
option `a.b.*` stands for every one below `a.b` that has no row of its own. Read in
transformers 5.23 training_args.py, peft 0.21 utils/constants.py, accelerate 1.15 commands/launch.py, DeepSpeed 0.19
runtime/config.py and zero/config.py, trl 1.16, and names that published scripts of those libraries use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

from vramwise.errors import LeftOut, ScenarioError, UsageError, clipped
from vramwise.interop.launch.misspelt import misspelt_notes
from vramwise.interop.launch.values import is_number, switch, whole
from vramwise.records import record
from vramwise.scenario import TrainSettings
from vramwise.scenario.definition import KINDS
from vramwise.scenario.values import Kind, Switch, Whole
from vramwise.tables import table

READ_IN_CODE = "="
_SHOWN = 12
_NAMED = 100
NO_EFFECT = "no effect on the memory counted here: "
"""Options that nobody knows are all named, as far as a person would read them."""
_NOTHING = frozenset({"", "none", "null", "no", "false", "0", "0.0", "auto"})
_BOOLEANS = frozenset({"true", "false", "yes", "no", "1", "0", "on", "off"})

T = TypeVar("T")


@record
class Option:
    """One row of training.csv."""

    takes: str
    key: str
    note: str


@cache
def options_of(program: str) -> Mapping[str, Option]:
    """The options of one program of training.csv."""
    rows = (row for row in table(__file__, "training") if row["program"] == program)
    return {row["option"]: Option(row["takes"], row["key"], row["note"]) for row in rows}


@dataclass(slots=True)
class Options:
    """What was given to a program that understands the options of `programs`, the first of which wins."""

    programs: tuple[str, ...]
    title: str
    values: dict[str, object] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)
    loose: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def known(self, name: str) -> Option | None:
        """The row of an option."""
        for program in self.programs:
            rows = options_of(program)
            found = rows.get(name)
            outer = name
            while found is None and "." in outer:
                outer = outer.rpartition(".")[0]
                found = rows.get(f"{outer}.*")
            if found is not None:
                return found
        return None

    def read_words(self, words: Sequence[str]) -> None:
        """Take the options of a command line, which win over what is there. Raises UsageError for a missing value."""
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if not word.startswith("-") or is_number(word) or word in ("-", "--"):
                if word != "--":
                    self.loose.append(word)
                continue
            written, equals, value = word.partition("=")
            name = written.lstrip("-").replace("-", "_")
            option, off = self.known(name), False
            outer, dot, last = name.rpartition(".")
            if last.startswith("no_") and (option is None or option is self.known(f"{outer}.*")):
                positive = self.known(outer + dot + last[3:])
                if positive is not None:
                    option, off, name = positive, True, outer + dot + last[3:]
            if option is None:
                self.unknown.append(written)
                if not equals and rest and not rest[0].startswith("-"):
                    rest.pop(0)  # whatever it means, the word after it is most likely its value
                continue
            if off:
                self.give(name, False, written)
            else:
                self.give(name, value if equals else _taken(option.takes, rest, written), written)

    def _misspelt(self) -> Iterator[str]:
        """Notes of options that misspell one that counts, spelt with the dashes of the first."""
        counted = {name for program in self.programs for name, row in options_of(program).items() if row.key}
        for written in self.unknown[:_NAMED]:
            name = written.lstrip("-")
            dashes, apart = written[: len(written) - len(name)], "-" if "-" in name else "_"
            yield from misspelt_notes([written], [dashes + one.replace("_", apart) for one in counted])

    def read_table(self, table: Mapping[str, object]) -> None:
        """Take what a configuration file says where nothing is given yet."""
        for key, value in table.items():
            name = str(key).replace("-", "_")
            if self.known(name) is None:
                self.unknown.append(str(key))
            elif name not in self.values and value is not None:
                self.give(name, value, str(key))

    def give(self, name: str, value: object, shown: str | None = None) -> None:
        """Set an option."""
        self.values[name] = value
        self.shown[name] = shown or name

    def first(self, *names: str) -> str | None:
        """The first of the options that has a value, as text."""
        for name in names:
            value = self.values.get(name)
            if value is not None and value != [] and str(value).lower() not in ("none", "null", ""):
                return str(value[-1] if isinstance(value, list) else value)
        return None

    def several(self, *names: str) -> list[str]:
        """The values of the first of the options that has some; commas separate too, and a list's own brackets go."""
        for name in names:
            value = self.values.get(name)
            if value is not None and str(value).lower() not in ("none", "null", ""):
                values = value if isinstance(value, list) else [value]
                parts = [part.strip() for one in values for part in _unbracketed(str(one)).split(",")]
                return [part for part in parts if part]
        return []

    def is_on(self, *names: str, default: bool = False) -> bool:
        """Whether the first of the switches that is given is on. Raises UsageError for what is neither."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, bool):
                return value
            if value is not None and str(value).lower() not in ("auto", "none", "null"):
                return bool(_named(self.shown[name], switch, str(value)))
        return default

    def number(self, *names: str) -> int | None:
        """The first of the options that is a whole number. Raises UsageError for what is none."""
        for name in names:
            value = self.values.get(name)
            if value is not None and str(value).lower() not in ("auto", "none", "null", ""):
                return whole_number(value, self.shown[name])
        return None

    def settings(self) -> dict[str, object]:
        """The scenario's keys that options set by themselves. Raises UsageError that names the option."""
        kinds = KINDS[TrainSettings]
        found: dict[str, object] = {}
        for name, value in self.values.items():
            option = self.known(name)
            if option is None or option.key in ("", READ_IN_CODE) or str(value).lower() in ("none", "auto", "null"):
                continue
            try:
                found[option.key] = kinds[option.key].read(_plain(kinds[option.key], value), name)
            except ScenarioError as problem:
                raise UsageError(f"{self.shown[name]}: {problem.problem}") from None
        return found

    def understood(self) -> tuple[str, ...]:
        """The options that the scenario is made of."""
        rows = ((name, self.known(name)) for name in self.values)
        return tuple(self.shown[name] for name, option in rows if option is not None and option.key)

    def passed_over(self) -> tuple[str, ...]:
        """The options without effect on the memory counted here, or that are off."""
        rows = ((name, self.known(name)) for name in self.values)
        return tuple(
            self.shown[name] for name, option in rows
            if option is not None and not option.key and not (option.note and self._is_set(name))
        )  # fmt: skip

    def _is_set(self, name: str) -> bool:
        return str(self.values[name]).lower() not in _NOTHING

    def notes(self) -> list[str]:
        """What was passed over: options whose effect is not counted, without effect, and unknown ones."""
        notes = []
        for name in self.values:
            option = self.known(name)
            if option is not None and not option.key and option.note and self._is_set(name):
                notes.append(f"{self.shown[name]} is not counted: {option.note}")
        passed = [self.shown[name] for name in self.values if (row := self.known(name)) and not row.key + row.note]
        if passed:
            notes.append(f"{NO_EFFECT}{_listed(passed)}")
        if self.unknown:
            notes.append(LeftOut(f"unknown to {self.title}, left out: {_listed(self.unknown, _NAMED)}"))
            notes += self._misspelt()
        if self.loose:
            notes.append(LeftOut(f"words that belong to no flag, left out: {_listed(self.loose)}"))
        return notes


def _unbracketed(text: str) -> str:
    """The entries of a list as Python or YAML writes it, `[q_proj, v_proj]`; the expression `[qv]_proj` stays."""
    inner = text.strip()
    if not (inner.startswith("[") and inner.endswith("]")) or "[" in inner[1:] or "]" in inner[:-1]:
        return text
    return ",".join(part.strip().strip("'\"") for part in inner[1:-1].split(","))


def flattened(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """The entries of nested tables by dotted names."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def whole_number(value: object, shown: str) -> int:
    """A whole number. Raises UsageError that names the option."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    found = _named(shown, whole, str(value))
    if found is None:
        raise UsageError(f'{shown}: expected a whole number, got "{clipped(str(value))}"')
    return found


def _named(shown: str, read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except UsageError as problem:
        raise UsageError(f"{shown}: {problem}") from None


def _plain(kind: Kind[object], value: object) -> object:
    """A value as a scenario's file would hold it: `yes` is true, and 5e8 of a YAML or JSON file a whole number."""
    if isinstance(value, str):
        return switch(value) if isinstance(kind, Switch) and value.lower() in _BOOLEANS else kind.from_text(value)
    return int(value) if isinstance(value, float) and value.is_integer() and isinstance(kind, Whole) else value


def _taken(takes: str, rest: list[str], written: str) -> object:
    if takes == "0":
        return True
    if takes == "?":
        return rest.pop(0) if rest and rest[0].lower() in _BOOLEANS else True
    if takes == "~":
        return rest.pop(0) if rest and not rest[0].startswith("-") else True
    if takes == "+":
        found = []
        while rest and not rest[0].startswith("-"):
            found.append(rest.pop(0))
        return found
    if not rest or (rest[0].startswith("--") and len(rest[0]) > 2):
        raise UsageError(f"{clipped(written)} needs a value")
    return rest.pop(0)


def _listed(names: Sequence[str], most: int = _SHOWN) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(clipped(name, 80) for name in names[:most]) + more
