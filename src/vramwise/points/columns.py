"""Columns of whole numbers, one for each configuration: lists, or NumPy's arrays where that is installed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from itertools import repeat
from typing import Any

Column = Any
"""A list of ints, or an array of 64-bit ones."""
Mask = Any

MOST = 1 << 62
"""What a column of 64-bit integers holds with a bit to spare; lists hold any."""
WORTH_ARRAYS = 64
"""Numbers from which on arrays gain more than the import of NumPy costs."""


class Lists:
    """Columns as plain lists: whole numbers of any size, and nothing to install."""

    most: int | None = None

    def column(self, values: Iterable[int]) -> Column:
        return list(values)

    def zeros(self, count: int) -> Column:
        return [0] * count

    def product(self, left: Column, right: Column) -> Column:
        return [x * y for x, y in zip(left, right, strict=True)]

    def combined(self, parts: Sequence[tuple[int, Column]], constant: int, count: int) -> Column:
        """`constant` and so many times each column."""
        if not parts:
            return [constant] * count
        (first, column), *others = parts
        found = [first * x + constant for x in column]
        for times, column in others:
            found = [known + times * x for known, x in zip(found, column, strict=True)]
        return found

    def floor(self, column: Column, divisor: int) -> Column:
        return [x // divisor for x in column]

    def half_even(self, column: Column, divisor: int) -> Column:
        """The quotients as `round` rounds them: halves to the even number."""
        return [_half_even(x, divisor) for x in column]

    def applied(self, operation: Callable[..., Any], operands: Sequence[Any]) -> Column:
        """An operation on doubles, number by number; an operand is a column or one number for all."""
        count = next(len(one) for one in operands if isinstance(one, list))
        rows = zip(*(one if isinstance(one, list) else repeat(one, count) for one in operands), strict=True)
        return [operation(*row) for row in rows]

    def whole(self, rounding: Callable[[float], int], column: Column) -> Column:
        """Doubles made whole numbers by `round` or `math.ceil`."""
        return [rounding(x) for x in column]

    def positive(self, column: Column) -> Mask:
        return [x > 0 for x in column]

    def zero(self, column: Column) -> Mask:
        return [x == 0 for x in column]

    def all(self, count: int) -> Mask:
        return [True] * count

    def both(self, left: Mask, right: Mask) -> Mask:
        return [x and y for x, y in zip(left, right, strict=True)]

    def only(self, left: Mask, right: Mask) -> Mask:
        """What is in the left mask and not in the right one."""
        return [x and not y for x, y in zip(left, right, strict=True)]

    def count(self, mask: Mask) -> int:
        return sum(mask)

    def ends(self, column: Column, mask: Mask) -> tuple[int, int]:
        """The least and the largest number where the mask is true."""
        chosen = self.chosen(column, mask)
        return min(chosen), max(chosen)

    def places(self, mask: Mask) -> list[int]:
        return [place for place, is_in in enumerate(mask) if is_in]

    def chosen(self, column: Column, mask: Mask) -> Column:
        """The numbers where the mask is true."""
        return [x for x, is_in in zip(column, mask, strict=True) if is_in]

    def put(self, target: list[int], mask: Mask, numbers: Column) -> None:
        """Write as many numbers as the mask is true at to where it is."""
        for place, number in zip(self.places(mask), numbers, strict=True):
            target[place] = number


def _half_even(number: int, divisor: int) -> int:
    whole, rest = divmod(number, divisor)
    return whole + (2 * rest > divisor or (2 * rest == divisor and whole % 2 == 1))


class Arrays:
    """The same as arrays of 64-bit integers. A number above MOST raises OverflowError before it is made."""

    most: int | None = MOST

    def __init__(self) -> None:
        import numpy

        self._np: Any = numpy

    def column(self, values: Iterable[int]) -> Column:
        return self._np.asarray(values if isinstance(values, self._np.ndarray) else list(values), dtype="int64")

    def zeros(self, count: int) -> Column:
        return self._np.zeros(count, dtype="int64")

    def product(self, left: Column, right: Column) -> Column:
        return left * right

    def combined(self, parts: Sequence[tuple[int, Column]], constant: int, count: int) -> Column:
        if not parts:
            return self._np.full(count, constant, dtype="int64")
        (first, column), *others = parts
        found, spare = column * first, self._np.empty_like(column)
        for times, column in others:
            self._np.multiply(column, times, out=spare)
            found += spare
        if constant:
            found += constant
        return found

    def floor(self, column: Column, divisor: int) -> Column:
        if divisor & (divisor - 1) == 0:
            return column >> divisor.bit_length() - 1
        return column // divisor

    def half_even(self, column: Column, divisor: int) -> Column:
        whole = column // divisor
        rest = 2 * (column - whole * divisor)
        return whole + ((rest > divisor) | ((rest == divisor) & (whole & 1 == 1)))

    def applied(self, operation: Callable[..., Any], operands: Sequence[Any]) -> Column:
        if operation is math.hypot:  # NumPy's own differs in the last bit
            shape = self._np.broadcast_arrays(*operands)
            return self._np.fromiter(map(math.hypot, *(one.tolist() for one in shape)), dtype="float64")
        with self._np.errstate(all="ignore"):  # of configurations that the run left
            return operation(*operands)

    def whole(self, rounding: Callable[[float], int], column: Column) -> Column:
        rounded = self._np.ceil(column) if rounding is math.ceil else self._np.rint(column)
        return rounded.astype("int64")

    def positive(self, column: Column) -> Mask:
        return column > 0

    def zero(self, column: Column) -> Mask:
        return column == 0

    def all(self, count: int) -> Mask:
        return self._np.ones(count, dtype=bool)

    def both(self, left: Mask, right: Mask) -> Mask:
        return left & right

    def only(self, left: Mask, right: Mask) -> Mask:
        return left & ~right

    def count(self, mask: Mask) -> int:
        return int(self._np.count_nonzero(mask))

    def ends(self, column: Column, mask: Mask) -> tuple[int, int]:
        chosen = column[mask]
        return int(chosen.min()), int(chosen.max())

    def places(self, mask: Mask) -> list[int]:
        found: list[int] = self._np.flatnonzero(mask).tolist()
        return found

    def chosen(self, column: Column, mask: Mask) -> Column:
        return column[mask]

    def put(self, target: Column, mask: Mask, numbers: Column) -> None:
        target[mask] = numbers


def whole_numbers(column: Iterable[int]) -> list[int]:
    """The numbers of a list, or of an array at once."""
    listed: Callable[[], list[int]] | None = getattr(column, "tolist", None)
    return listed() if listed is not None else [int(x) for x in column]


def columns_for(count: int) -> Lists | Arrays:
    """Arrays where NumPy is installed and there are enough numbers for it, else lists."""
    return Arrays() if count >= WORTH_ARRAYS and find_spec("numpy") is not None else Lists()
