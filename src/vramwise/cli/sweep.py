"""`--sweep KEY=VALUES [KEY=VALUES]`: one estimate for every combination, and what fits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from vramwise.cli import flag
from vramwise.cli.scenario_flags import read_flag, said_number
from vramwise.errors import UsageError, clipped, nearest
from vramwise.records import record
from vramwise.result import VerdictWord
from vramwise.scenario import Scenario
from vramwise.scenario.definition import KINDS, TABLES, table_of
from vramwise.scenario.values import Kind, Switch

MOST_KEYS = 2
MOST_POINTS = 4096
NOT_SWEPT = ("task",)


@record
class Axis:
    """A key and the values that it takes, as they were written and as the scenario keeps them."""

    key: str
    labels: tuple[str, ...]
    values: tuple[object, ...]

    @property
    def shown(self) -> tuple[str, ...]:
        """The labels, numbers among them with commas between thousands; names such as the GPU 4090 as they are."""
        pairs = zip(self.labels, self.values, strict=True)
        return tuple(f"{value:,}" if type(value) is int and label.isdecimal() else label for label, value in pairs)


@record
class Point:
    """One combination: what it needs and whether it fits, or why it has no answer."""

    labels: tuple[str, ...]
    needed_bytes: int | None = None
    word: VerdictWord | None = None
    peak_phase: str = ""
    error: str = ""

    @property
    def fits(self) -> bool | None:
        """True for *fits* and *tight*; None where nothing is said, without a card."""
        return None if self.word is None else self.word != "does not fit"

    def settings(self, axes: Sequence[Axis]) -> dict[str, object]:
        """The values that this combination gives to the keys."""
        pairs = zip(axes, self.labels, strict=True)
        return {axis.key: axis.values[axis.labels.index(label)] for axis, label in pairs}

    def to_dict(self, axes: Sequence[Axis]) -> dict[str, object]:
        """The point as JSON-able data."""
        if self.error:
            return {"settings": self.settings(axes), "error": self.error}
        answer = {
            "needed_bytes": self.needed_bytes,
            "word": self.word,
            "fits": self.fits,
            "peak_phase": self.peak_phase,
        }
        return {"settings": self.settings(axes), **answer}


def axes_of(texts: Sequence[str], task: str) -> tuple[Axis, ...]:
    """The axes of `KEY=VALUES` texts.

    VALUES are values with commas between, or a range by doubling (`1k..32k` is 1024, 2048, … 32768; k is 1024).
    Raises UsageError for a key that the task does not have, a value that it does not take, or too many of either.
    """
    axes = tuple(_axis(text, task) for text in texts)
    if len({axis.key for axis in axes}) != len(axes):
        raise UsageError("--sweep: a key is given twice")
    if len(axes) > MOST_KEYS:
        raise UsageError(f"--sweep: expected one or two keys, got {len(axes)}")
    points = 1
    for axis in axes:
        points *= len(axis.values)
    if points > MOST_POINTS:
        raise UsageError(f"--sweep: {points:,} combinations; expected at most {MOST_POINTS:,}")
    return axes


def first_model(texts: Sequence[str]) -> str | None:
    """The first of several models that are swept."""
    models = (text.partition("=")[2].split(",")[0].strip() for text in texts if text.startswith("model="))
    return next(models, None) or None


def _axis(text: str, task: str) -> Axis:
    key, equals, values = text.partition("=")
    key = key.strip().removeprefix("--").replace("-", "_")
    kinds = {**KINDS[Scenario], **KINDS[TABLES[table_of(task)]]}
    if not equals or not values:
        raise UsageError(f'--sweep: expected KEY=VALUES such as micro_batch_size=1,2,4, got "{clipped(text)}"')
    if key not in kinds or key in NOT_SWEPT:
        known = [name for name in kinds if name not in NOT_SWEPT]
        near = nearest(key, known)
        hint = f"did you mean {', '.join(near)}?" if near else f"expected a flag's name of --task {task}"
        raise UsageError(f'--sweep: no key "{clipped(key)}": {hint}')
    labels = tuple(label for part in values.split(",") for label in _labels(part.strip(), text))
    return Axis(key, labels, tuple(_value(key, kinds[key], label) for label in labels))


def _labels(part: str, text: str) -> Iterator[str]:
    """The values that one part of VALUES stands for."""
    low_text, dots, high_text = part.partition("..")
    if not dots:
        yield part
        return
    low, high = said_number(low_text), said_number(high_text)
    if low is None or high is None or not 0 < low <= high:
        raise UsageError(f'--sweep: expected a range such as 1..32 or 1k..32k, got "{clipped(part or text)}"')
    while low <= high:
        yield str(low)
        low *= 2


def _value(key: str, kind: Kind[object], label: str) -> object:
    if isinstance(kind, Switch):
        if label not in ("true", "false"):
            raise UsageError(f'--sweep: {key}: expected true or false, got "{clipped(label)}"')
        return label == "true"
    number = said_number(label)
    if number is not None and label[-1].isalpha():
        label = str(number)
    try:
        return read_flag(key, kind, label)
    except UsageError as error:
        raise UsageError(f"--sweep: {key}: {str(error).removeprefix(flag(key) + ': ')}") from None


def points_of(scenario: Scenario, axes: Sequence[Axis]) -> list[Point]:
    """Every combination in order, the last key fastest; one that cannot be answered says why."""
    from vramwise.cli.screens.progress import Progress
    from vramwise.planner.grid import grid

    labels = list(itertools.product(*(axis.labels for axis in axes)))
    progress = Progress("estimating", len(labels), "combinations")
    try:
        found = grid(scenario, {axis.key: axis.values for axis in axes}, replays=True, seen=progress.at)
    finally:
        progress.end()
    return [
        Point(label, cell.needed_bytes, cell.word, cell.peak_phase, cell.error)
        for label, cell in zip(labels, found.cells, strict=True)
    ]
