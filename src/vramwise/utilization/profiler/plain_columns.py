"""What the figures of a trace ask of NumPy, on Python's own lists: for a browser, where NumPy is not.

Functions and methods have NumPy's names and give its numbers: whole numbers exactly, doubles added up in its order.
One dimension alone; a `dtype` says nothing, as a list takes any number.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain, compress, repeat
from typing import Any

int64, float64 = int, float
FEW_SEARCHES = 8
"""So many times fewer than the numbers that are searched: each is searched by itself."""


class Column:
    """Numbers, or truth values, one behind the other; `values` is the list."""

    __slots__ = ("values",)
    __hash__ = None  # type: ignore[assignment]  # as of an array: `==` compares number by number

    def __init__(self, values: Iterable[Any]) -> None:
        self.values = values if type(values) is list else list(values)

    @property
    def dtype(self) -> type | None:
        """The kind of its numbers; None where there are none."""
        return type(self.values[0]) if self.values else None

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __getitem__(self, key: Any) -> Any:
        """One number, a part, those that a mask chooses, or those at the places of another column."""
        if isinstance(key, Column):
            if key.dtype is bool:
                return Column(compress(self.values, key.values))
            values = self.values
            return Column([values[place] for place in key.values])
        return Column(self.values[key]) if isinstance(key, slice) else self.values[key]

    def __setitem__(self, key: slice, value: Iterable[object]) -> None:
        self.values[key] = list(value)

    def _with(self, other: object, of_two: Callable[[Any, Any], Any]) -> Column:
        return Column(map(of_two, self.values, _numbers(other)))

    def __add__(self, other: object) -> Column:
        return self._with(other, operator.add)

    __radd__ = __add__

    def __sub__(self, other: object) -> Column:
        return self._with(other, operator.sub)

    def __mul__(self, other: object) -> Column:
        return self._with(other, operator.mul)

    def __floordiv__(self, other: object) -> Column:
        return self._with(other, operator.floordiv)

    def __truediv__(self, other: object) -> Column:
        return self._with(other, lambda one, by: float(one) / by)

    def __rshift__(self, other: object) -> Column:
        return self._with(other, operator.rshift)

    def __and__(self, other: object) -> Column:
        return self._with(other, operator.and_)

    def __or__(self, other: object) -> Column:
        return self._with(other, operator.or_)

    def __eq__(self, other: object) -> Any:
        return self._with(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._with(other, operator.ne)

    def __lt__(self, other: object) -> Column:
        return self._with(other, operator.lt)

    def __le__(self, other: object) -> Column:
        return self._with(other, operator.le)

    def __gt__(self, other: object) -> Column:
        return self._with(other, operator.gt)

    def __ge__(self, other: object) -> Column:
        return self._with(other, operator.ge)

    def __neg__(self) -> Column:
        return Column(map(operator.neg, self.values))

    def __invert__(self) -> Column:
        """Of a mask: what it does not choose."""
        return Column(map(operator.not_, self.values))

    def sum(self) -> object:
        """All together; the number of chosen ones of a mask."""
        return sum(self.values)

    def min(self) -> object:
        """The least."""
        return min(self.values)

    def max(self) -> object:
        """The most."""
        return max(self.values)

    def argmax(self) -> int:
        """The place of the first of the most."""
        return self.values.index(max(self.values))

    def any(self) -> bool:
        """Whether one holds."""
        return any(self.values)

    def all(self) -> bool:
        """Whether each holds."""
        return all(self.values)

    def union_until(self, end: Column) -> tuple[Column, Column]:
        """Of intervals from here to there, none of negative length: starts and ends of what they cover together."""
        starts, ends = sorted(self.values), sorted(end.values)
        first, *later = starts
        apart = list(map(operator.gt, later, ends))
        return Column([first, *compress(later, apart)]), Column([*compress(ends, apart), ends[-1]])

    def looked_up(self, values: Column, wanted: Column, absent: object) -> Column:
        """For each that is wanted, the value beside the first that equals it here, or what is said where none does."""
        first = dict(zip(reversed(self.values), reversed(values.values), strict=True))
        return Column(map(first.get, wanted.values, repeat(absent)))

    def is_one_of(self, known: Column) -> Column:
        """Which occur among the known."""
        return Column(map(set(known.values).__contains__, self.values))

    def tolist(self) -> list[object]:
        """A list of its own."""
        return list(self.values)

    def astype(self, kind: Callable[[object], object]) -> Column:
        """Each as another kind of number."""
        return Column(map(kind, self.values))


class _Extreme:
    """`minimum` or `maximum`."""

    def __init__(self, of: Callable[..., object], beyond: Callable[[Any, Any], bool]) -> None:
        self._of = of
        self._beyond = beyond

    def __call__(self, one: Column, other: object) -> Column:
        passed = map(self._beyond, _numbers(other), one.values)
        pairs = zip(passed, one.values, _numbers(other), strict=False)
        return Column([second if is_second else first for is_second, first, second in pairs])

    def accumulate(self, of: Column) -> Column:
        """The extreme of everything up to each place."""
        return Column(accumulate(of.values, self._of))

    def reduceat(self, of: Column, begins: Column) -> Column:
        """The extreme of each part, from one of `begins` to the next."""
        ends = [*begins.values[1:], len(of)]
        return Column(self._of(of.values[begin:end]) for begin, end in zip(begins, ends, strict=True))


minimum, maximum = _Extreme(min, operator.lt), _Extreme(max, operator.gt)


def _numbers(given: object) -> Iterable[object]:
    return given.values if isinstance(given, Column) else repeat(given)


def array(values: Iterable[object], dtype: object = None) -> Column:
    """A column of these, which are its own from now on."""
    return Column(list(values))


asarray = array


def full(count: int, value: object, dtype: object = None) -> Column:
    """The same number so often."""
    return Column(repeat(value, count))


def ones(count: int, dtype: Callable[[int], object] = float) -> Column:
    """Ones, or what is true."""
    return full(count, dtype(1))


def zeros(count: int, dtype: Callable[[int], object] = float) -> Column:
    """Zeros, or what is false."""
    return full(count, dtype(0))


empty = zeros


def concatenate(parts: Iterable[Iterable[object]]) -> Column:
    """One behind the other."""
    return Column(chain.from_iterable(parts))


def append(of: Column, value: object) -> Column:
    """One more number, or another column, at the end."""
    return Column([*of.values, *(value if isinstance(value, Column) else [value])])


def argsort(of: Column, kind: str = "stable") -> Column:
    """Places in ascending order; equal ones stay as they are."""
    return Column(sorted(range(len(of)), key=of.values.__getitem__))


def sort(of: Column) -> Column:
    """In ascending order."""
    return Column(sorted(of.values))


def searchsorted(ordered: Column, values: Iterable[object]) -> Column:
    """The first place at which each would keep the order."""
    wanted = list(values)
    if FEW_SEARCHES * len(wanted) < len(ordered):
        return Column([bisect_left(ordered.values, one) for one in wanted])
    first = dict(zip(reversed(ordered.values), range(len(ordered) - 1, -1, -1), strict=True))
    known = map(first.get, wanted)  # most of what is looked for is there, and this a tenth of a search
    return Column([
        bisect_left(ordered.values, one) if place is None else place
        for one, place in zip(wanted, known, strict=True)
    ])  # fmt: skip


def flatnonzero(of: Column) -> Column:
    """The places of what is not zero or false."""
    return Column(compress(range(len(of)), of.values))


def where(mask: Column, yes: object, no: object) -> Column:
    """From the one where the mask holds, else from the other."""
    columns = zip(mask, _numbers(yes), _numbers(no), strict=False)
    return Column([one if holds else other for holds, one, other in columns])


def clip(of: Column, low: Any, high: Any) -> Column:
    """Not below the one, not above the other."""
    if isinstance(low, Column) or isinstance(high, Column):
        return minimum(maximum(of, low), high)
    if of.values and low <= min(of.values) and max(of.values) <= high:  # the times of a window's own events
        return of
    return Column([low if one < low else high if one > high else one for one in of.values])


def cumsum(of: Column) -> Column:
    """The sum of everything up to each place."""
    return Column(accumulate(of.values))


def diff(of: Column) -> Column:
    """From each to the next."""
    return Column(map(operator.sub, of.values[1:], of.values))


def isnan(of: Column) -> Column:
    """Which are no number."""
    return Column(map(operator.ne, of.values, of.values))


def bincount(of: Column, weights: Column | None = None, minlength: int = 0) -> Column:
    """How often each whole number occurs, or the sum of its weights, as doubles."""
    if weights is None:
        counts = Counter(of.values)
        return Column([counts[one] for one in range(max(minlength, max(counts, default=-1) + 1))])
    found = [0.0] * max(minlength, max(of.values, default=-1) + 1)
    for one, weight in zip(of.values, weights.values, strict=True):
        found[one] += weight
    return Column(found)


def linspace(start: float, end: float, count: int) -> Column:
    """So many numbers with equal distances."""
    step = (end - start) / (count - 1)
    return Column([start + i * step for i in range(count - 1)] + [float(end)])


def interp(at: Column, known: Column, values: Column) -> Column:
    """A line through points whose places ascend, read off at others; beyond the ends it goes on level."""
    found = []
    for one in at:
        place = bisect_left(known.values, one)
        if place == 0 or place == len(known):
            found.append(values[min(place, len(known) - 1)])
            continue
        x0, x1, y0, y1 = known[place - 1], known[place], values[place - 1], values[place]
        found.append(y0 + (y1 - y0) / (x1 - x0) * (one - x0))
    return Column(found)
