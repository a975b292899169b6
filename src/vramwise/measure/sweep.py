"""Memory by experiment: a grid of sizes, the line through the peaks, and the largest size under a cap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from vramwise.errors import UsageError, clipped
from vramwise.scenario.definition import KINDS, TABLES, table_of
from vramwise.scenario.values import Whole

MOST_RUNS: Final = 500
_TOKENS: Final = {"train": ("micro_batch_size", "sequence_length"), "generate": ("batch_size", "prompt_tokens")}


def parse_sweep(texts: Sequence[str], task: str) -> dict[str, list[int]]:
    """`["micro_batch_size=1,2,4", "sequence_length=512..8192"]` as values by key; `a..b` doubles from a to b.

    Raises UsageError for a key that the task's table does not have as a whole number, and for too many runs.
    """
    kinds = KINDS[TABLES[table_of(task)]]
    found: dict[str, list[int]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        key = key.replace("-", "_")
        if not equals or not isinstance(kinds.get(key), Whole):
            sizes = ", ".join(name for name, kind in kinds.items() if isinstance(kind, Whole))
            raise UsageError(
                f'--sweep: expected KEY=1,2,4 or KEY=512..8192 with KEY one of {sizes}; got "{clipped(text)}"'
            )
        found[key] = sorted({value for piece in values.split(",") for value in _values(piece, text)})
    count = 1
    for values_of_key in found.values():
        count *= len(values_of_key)
    if count > MOST_RUNS:
        raise UsageError(f"--sweep: {count:,} runs are too many (at most {MOST_RUNS})")
    return found


def _values(piece: str, text: str) -> list[int]:
    low, dots, high = piece.strip().partition("..")
    try:
        first, last = int(low), int(high) if dots else int(low)
    except ValueError:
        raise UsageError(f'--sweep: expected whole numbers, got "{clipped(text)}"') from None
    if first < 1 or last < first or last > 2**31:
        raise UsageError(f'--sweep: expected numbers from 1 on, the smaller first, got "{clipped(text)}"')
    found = [first]
    while found[-1] * 2 <= last:
        found.append(found[-1] * 2)
    return found if found[-1] == last else [*found, last]


def grid(values: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """Every combination, smaller sizes first, so that an early end leaves the cheap ones."""
    rows = [dict(zip(values, row, strict=True)) for row in product(*values.values())]
    return sorted(rows, key=lambda row: _volume(row.values()))


def _volume(sizes: Any) -> int:
    found = 1
    for size in sizes:
        found *= size
    return found


@dataclass(frozen=True, slots=True)
class Line:
    """bytes = fixed + slope · x, least squares; `x` says what x is, residuals are measured − line, point by point."""

    x: str
    fixed: float
    slope: float
    residuals: tuple[float, ...]
    r_squared: float

    @property
    def largest_residual(self) -> float:
        return max((abs(residual) for residual in self.residuals), default=0.0)


def size_of(task: str, swept: Sequence[str], table: Mapping[str, Any]) -> tuple[str, int]:
    """The size that memory is linear in: tokens in flight where batch or length was swept, else the one swept key."""
    keys = _TOKENS.get(task, ())
    if any(key in swept for key in keys):
        return "tokens (" + " · ".join(keys) + ")", _volume(int(table.get(key) or 1) for key in keys)
    return swept[0], int(table[swept[0]])


def fitted(x_name: str, points: Sequence[tuple[int, int]]) -> Line | None:
    """The line through (x, bytes); None with fewer than two different x."""
    if len({x for x, _ in points}) < 2:
        return None
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    fixed = mean_y - slope * mean_x
    residuals = tuple(y - (fixed + slope * x) for x, y in points)
    total = sum((y - mean_y) ** 2 for _, y in points)
    unexplained = sum(residual**2 for residual in residuals)
    return Line(x_name, fixed, slope, residuals, 1 - unexplained / total if total else 1.0)


def largest_that_fits(fits: Callable[[int], bool], guess: int, most: int) -> int:
    """The largest size from 1 to `most` that fits, 0 when none does; `fits` must not come back once it is false.

    Starts at `guess` (an estimate), doubles or halves away from it until the answer is bracketed, then bisects.
    """
    size = min(max(1, guess), most)
    low, high = 0, most + 1
    while low + 1 < high:
        if fits(size):
            low = size
            size = min(2 * size, most) if high > most else (low + high) // 2
        else:
            high = size
            size = max(1, size // 2) if low == 0 else (low + high) // 2
        size = min(max(size, low + 1), high - 1) if low + 1 < high else size
    return low
