"""A scenario over values of some of its keys: what every combination needs, and whether it fits.

Sizes of a training (`micro_batch_size`, `sequence_length`) and the length of a server's requests are worked out for all
combinations at once, by the code of the estimate on columns; every other key, and what has no such answer, takes an
estimate of its own. Both give the same numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from vramwise.errors import UsageError, VramwiseError
from vramwise.estimation import estimate, needs_of_lengths, needs_together
from vramwise.planner.changes import changed
from vramwise.points.needs import ManyNeeds
from vramwise.records import record
from vramwise.result import VerdictWord
from vramwise.scenario import Scenario
from vramwise.scenario.definition import KINDS, TABLES, table_of
from vramwise.scenario.values import unknown_key
from vramwise.training.reserved_memory.reserved import NEARLY_FULL
from vramwise.verdict import word_of

TOGETHER = {"train": ("micro_batch_size", "sequence_length"), "serve": ("max_model_len",)}
MOST_POINTS = 1 << 22

Seen = Callable[[int], None]


@record
class Cell:
    """One combination: what it needs, or why it has no answer. Without a card there is no word."""

    needed_bytes: int | None = None
    peak_allocated_bytes: int | None = None
    word: VerdictWord | None = None
    peak_phase: str = ""
    error: str = ""


@record
class Grid:
    """The cells in order, the values of the last key fastest."""

    keys: tuple[str, ...]
    values: tuple[tuple[object, ...], ...]
    cells: tuple[Cell, ...]
    usable_bytes: int | None

    def to_dict(self) -> dict[str, object]:
        """Axes, and a matrix of each figure, nested as the axes are."""
        return {
            "axes": [{"key": key, "values": list(values)} for key, values in zip(self.keys, self.values, strict=True)],
            "usable_bytes": self.usable_bytes,
            "needed_bytes": self._nested([cell.needed_bytes for cell in self.cells]),
            "word": self._nested([cell.word for cell in self.cells]),
            "peak_phase": self._nested([cell.peak_phase or None for cell in self.cells]),
            "error": self._nested([cell.error or None for cell in self.cells]),
        }

    def _nested(self, flat: list[object]) -> list[object]:
        for values in self.values[:0:-1]:
            flat = [flat[first : first + len(values)] for first in range(0, len(flat), len(values))]
        return flat


def grid(
    scenario: Scenario | Mapping[str, object], axes: Mapping[str, Sequence[object]], *, replays: bool = False,
    seen: Seen = lambda number: None,
) -> Grid:  # fmt: skip
    """What a scenario needs for every combination of the values of some keys (`{"sequence_length": [1024, 2048]}`).

    `replays`: what nearly fills the card is held against a replay of torch's allocator too, as `estimate` does; a
    replay only ever adds to a need. `seen` is called with the number of cells so far. Raises UsageError for axes that
    are empty or too many, ScenarioError for a wrong key or value, and what `estimate` raises of a model or a card; a
    combination that is refused says why in its cell.
    """
    if not isinstance(scenario, Scenario):
        scenario = Scenario.from_dict(scenario)
    values = {key: _read(scenario.task, key, given) for key, given in axes.items()}
    count = math.prod(map(len, values.values()))
    if not axes or count > MOST_POINTS:
        raise UsageError(f"grid: {count:,} combinations; expected 1 to {MOST_POINTS:,} of at least one key")
    table = _Table(scenario, values, replays, seen)
    for others in table.structures():
        table.fill(others)
    return Grid(tuple(axes), tuple(table.axes.values()), tuple(table.cells), table.usable_bytes)


class _Table:
    """The cells while they are filled; `together` are the keys whose values are worked out at once."""

    def __init__(self, scenario: Scenario, axes: dict[str, tuple[object, ...]], replays: bool, seen: Seen) -> None:
        self.scenario, self.axes, self.replays, self.seen = scenario, axes, replays, seen
        self.together = tuple(key for key in TOGETHER.get(scenario.task, ()) if key in axes and None not in axes[key])
        self.cells = [Cell()] * math.prod(map(len, axes.values()))
        self.filled = 0
        self.usable_bytes: int | None = None
        self._steps: dict[str, int] = {}
        step = len(self.cells)
        for key, values in axes.items():
            step //= len(values)
            self._steps[key] = step

    def structures(self) -> Iterator[dict[str, int]]:
        """Places of values of all keys but those that are taken together."""
        return self._places([key for key in self.axes if key not in self.together])

    def _places(self, keys: Sequence[str]) -> Iterator[dict[str, int]]:
        for places in itertools.product(*(range(len(self.axes[key])) for key in keys)):
            yield dict(zip(keys, places, strict=True))

    def fill(self, others: dict[str, int]) -> None:
        """The cells with these values of the other keys."""
        first = self._index(others)
        rows = [(first + self._index(places), places) for places in self._places(self.together)]
        asked: list[tuple[int, dict[str, object]]] = []
        refused: dict[tuple[str, int], str] = {}
        try:
            base = changed(self.scenario, self._values(others))
            for key in self.together:
                for place, value in enumerate(self.axes[key]):
                    if (problem := _problem(base, key, value)) is not None:
                        refused[key, place] = problem
            for index, places in rows:
                problem = next((refused[one] for one in places.items() if one in refused), None)
                if problem is not None:
                    self._put(index, Cell(error=problem))
                else:
                    asked.append((index, self._values(places)))
            found = _together(base, self.together, [values for _, values in asked])
        except VramwiseError as problem:
            for index, _ in rows:
                self._put(index, Cell(error=str(problem)))
            return
        if found is not None:
            self.usable_bytes = found.usable_bytes
        for place, (index, values) in enumerate(asked):
            cell = found.cell(place, values) if found is not None else None
            self._put(index, cell if cell is not None and not self._is_open(cell) else self._alone(base, values))

    def _put(self, index: int, cell: Cell) -> None:
        self.cells[index] = cell
        self.filled += 1
        self.seen(self.filled)

    def _index(self, places: dict[str, int]) -> int:
        return sum(self._steps[key] * place for key, place in places.items())

    def _values(self, places: dict[str, int]) -> dict[str, object]:
        return {key: self.axes[key][place] for key, place in places.items()}

    def _is_open(self, cell: Cell) -> bool:
        """Whether a replay may say otherwise."""
        if not self.replays or cell.needed_bytes is None or self.usable_bytes is None:
            return False
        return NEARLY_FULL * self.usable_bytes < cell.needed_bytes <= self.usable_bytes

    def _alone(self, base: Scenario, values: dict[str, object]) -> Cell:
        """A combination by an estimate of its own."""
        try:
            result = estimate(changed(base, values) if values else base, replays=self.replays)
        except VramwiseError as problem:
            return Cell(error=str(problem))
        if result.capacity is not None:
            self.usable_bytes = result.capacity.usable_bytes
        allocated = result.quantities.get("peak_allocated")
        return Cell(
            int(result.needed.expected),
            None if allocated is None else int(allocated.expected),
            result.verdict.word if result.verdict is not None else None,
            result.peak_phase or "",
        )


@record
class _Found:
    needs: ManyNeeds

    @property
    def usable_bytes(self) -> int | None:
        return self.needs.usable_bytes

    def cell(self, place: int, values: Mapping[str, object]) -> Cell | None:
        """The cell of a combination; None where an estimate of its own says it."""
        needs, word = self.needs, None
        refusal = needs.refusals.get(int(str(values.get("sequence_length", 0))))
        if refusal is not None:
            return Cell(error=refusal)
        if int(needs.phases[place]) < 0:
            return None
        needed = int(needs.needed_bytes[place])
        if needs.usable_bytes is not None and needs.high_bytes is not None:
            high = int(needs.high_bytes[place])
            word = word_of(needed, high, needs.usable_bytes) if needs.runs else "does not fit"
        allocated = None if needs.peak_allocated_bytes is None else int(needs.peak_allocated_bytes[place])
        return Cell(needed, allocated, word, needs.names[int(needs.phases[place])])


def _read(task: str, key: str, values: Sequence[object]) -> tuple[object, ...]:
    """The values of a key as a scenario keeps them."""
    table = table_of(task)
    known = {**KINDS[TABLES[table]], **KINDS[Scenario]}
    if key not in known or key == "task":
        raise unknown_key(table, key, [name for name in known if name != "task"])
    if not values:
        raise UsageError(f"grid: no values of {key}")
    path = key if key in KINDS[Scenario] else f"{table}.{key}"
    return tuple(value if value is None and known[key].optional else known[key].read(value, path) for value in values)


def _problem(base: Scenario, key: str, value: object) -> str | None:
    """Why a key cannot have a value."""
    try:
        changed(base, {key: value})
    except VramwiseError as problem:
        return str(problem)
    return None


def _together(base: Scenario, keys: Sequence[str], asked: Sequence[Mapping[str, object]]) -> _Found | None:
    """The needs of all combinations at once; None where one estimate for each is the way."""
    if not keys or len(asked) < 2:
        return None
    columns = {key: [int(str(values[key])) for values in asked] for key in keys}
    if base.task == "serve":
        found = needs_of_lengths(base, columns["max_model_len"])
    else:
        found = needs_together(base, columns.get("micro_batch_size"), columns.get("sequence_length"), ends=True)
    return None if found is None else _Found(found)
