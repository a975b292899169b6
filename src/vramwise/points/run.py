"""Configurations that go through the same code together, as long as every comparison in it has one answer for them.

Where a comparison has two, the run goes on with the larger part; the rest runs again from the start. Each run ends with
polynomials that hold for all that are left in it, so that the answer for each is that of running the code on it alone.
Most comparisons are decided by the least and the largest value of the two sides' difference, without looking at a
single configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from vramwise.points.columns import Arrays, Column, Lists, Mask, columns_for
from vramwise.points.expression import ONE, Expression, Monomial, Terms

Work = Callable[[dict[str, Any]], Sequence[Any]]
"""Code that takes the sizes, as expressions or as numbers, and gives whole numbers."""
_FEW = 3
"""Configurations that are quicker one by one than together."""
_MOST_CORNERS = 4
"""Sizes of a difference whose corners are looked at: twice as many for each."""


class Points:
    """Configurations by their sizes: the columns are equally long and hold whole numbers from 1 on.

    Raises OverflowError where a number may be larger than the columns hold; `columns=Lists()` holds any.
    """

    def __init__(self, sizes: Mapping[str, Sequence[int]], columns: Lists | Arrays | None = None) -> None:
        self.count = len(next(iter(sizes.values())))
        self._columns = columns if columns is not None else columns_for(self.count)
        self._names = tuple(sizes)
        self._sizes = [self._columns.column(values) for values in sizes.values()]
        self._numbers: dict[object, int] = {}
        self._inside: dict[int, tuple[Terms, int]] = {}
        self._ends_of_whole: dict[int, tuple[int, int]] = {}
        self._reals: dict[object, Column] = {}
        self._products: dict[Monomial, Column] = {(i,): column for i, column in enumerate(self._sizes)}
        self._masks: dict[object, Mask] = {}
        self._ends: dict[Monomial, tuple[int, int]] = {}
        self._most: dict[int, int] = {}
        self._active: Mask = self._columns.all(self.count)
        self._left = self.count
        self.runs = 0

    def outcomes(self, work: Work, many: int) -> list[Column]:
        """What `work` gives for every configuration: `many` columns."""
        found = [self._columns.zeros(self.count) for _ in range(many)]
        waiting, left = self._columns.all(self.count), self.count
        while left:
            if left <= _FEW:
                self._alone(work, waiting, found)
                break
            if 2 * left <= self.count:  # few are left: nothing is worked out for the others any more
                rest = self._of(waiting)
                for target, column in zip(found, rest.outcomes(work, many), strict=True):
                    self._columns.put(target, waiting, column)
                self.runs += rest.runs
                break
            self.runs += 1
            self._active, self._left = waiting, left
            self._look()
            # new expressions for each run: what a cache has for others holds for other configurations
            sizes = {name: Expression(self, {(i,): 1}) for i, name in enumerate(self._names)}
            for target, value in zip(found, work(sizes), strict=True):
                terms = value.terms if isinstance(value, Expression) else {ONE: value} if value else {}
                self._columns.put(target, self._active, self._columns.chosen(self._column(terms), self._active))
            waiting, left = self._columns.only(waiting, self._active), left - self._left
        self._masks.clear()
        self._reals.clear()
        self._products.clear()  # what was worked out for the sizes may be kept longer than they are of use
        return found

    def _alone(self, work: Work, waiting: Mask, found: list[Column]) -> None:
        """The code on plain numbers, for the few configurations that are left."""
        for place in self._columns.places(waiting):
            self.runs += 1
            sizes = {name: int(column[place]) for name, column in zip(self._names, self._sizes, strict=True)}
            for target, value in zip(found, work(sizes), strict=True):
                target[place] = value

    def _of(self, mask: Mask) -> Points:
        sizes = zip(self._names, self._sizes, strict=True)
        return Points({name: self._columns.chosen(column, mask) for name, column in sizes}, self._columns)

    def one(self, terms: Terms) -> int:
        """The value of a polynomial for one configuration of the run."""
        place = self._columns.places(self._active)[0]
        return sum(times * self._at(monomial, place) for monomial, times in terms.items())

    def _at(self, monomial: Monomial, place: int) -> int:
        return prod(int(self._product((number,))[place]) for number in monomial)

    # -- numbers ----------------------------------------------------------------------------------------------

    def quotient(self, terms: Terms, divisor: int) -> Expression:
        """The whole part of a polynomial over a number, as a size of its own."""
        return self._sized(terms, divisor, halves=False)

    def half_even(self, terms: Terms, divisor: int) -> Expression:
        """The same rounded to the nearest number, halves to the even one."""
        return self._sized(terms, divisor, halves=True)

    def _sized(self, terms: Terms, divisor: int, *, halves: bool) -> Expression:
        key = frozenset(terms.items()), divisor, halves
        number = self._numbers.get(key)
        if number is None:
            divide = self._columns.half_even if halves else self._columns.floor
            number = self._new(key, divide(self._column(terms), divisor))
            self._inside[number] = terms, divisor
        return Expression(self, {(number,): 1})

    def real(self, key: object, operation: Callable[..., Any], operands: Sequence[Any]) -> Column:
        """The column of an operation on doubles, which `key` says."""
        if key not in self._reals:
            columns = [self._operand(one) for one in operands]
            self._reals[key] = self._columns.applied(operation, columns)
        return self._reals[key]

    def _operand(self, operand: Any) -> Any:
        if isinstance(operand, Expression):
            return self._column(operand.terms)
        return operand if isinstance(operand, int | float) else operand.column

    def whole(self, key: object, column: Column, rounding: Callable[[float], int]) -> Expression:
        """Doubles rounded to whole numbers, as a size of its own."""
        named = key, rounding.__name__
        if named not in self._numbers:
            whole = self._columns.whole(rounding, column)
            self._ends_of_whole[self._new(named, whole)] = self._columns.ends(whole, self._columns.all(self.count))
        return Expression(self, {(self._numbers[named],): 1})

    def _new(self, key: object, column: Column) -> int:
        """The number of a size that was not known before."""
        number = self._numbers[key] = len(self._names) + len(self._numbers)
        self._products[(number,)] = column
        return number

    def _column(self, terms: Terms) -> Column:
        most = self._columns.most
        if most is not None and sum(abs(times) * self._whole(monomial) for monomial, times in terms.items()) > most:
            raise OverflowError("more than a column of 64-bit integers holds")
        parts = [(times, self._product(monomial)) for monomial, times in terms.items() if monomial]
        return self._columns.combined(parts, terms.get(ONE, 0), self.count)

    def _product(self, monomial: Monomial) -> Column:
        found = self._products.get(monomial)
        if found is None:
            found = self._columns.product(self._product(monomial[:-1]), self._product(monomial[-1:]))
            self._products[monomial] = found
        return found

    def _whole(self, monomial: Monomial) -> int:
        """The most that a product may be, of all configurations."""
        found = 1
        for number in monomial:
            found *= self._largest(number)
        return found

    def _largest(self, number: int) -> int:
        if number in self._ends_of_whole:
            return max(map(abs, self._ends_of_whole[number]))
        if number not in self._most:
            terms, divisor = self._inside[number]
            top = sum(times * self._whole(monomial) for monomial, times in terms.items() if times > 0)
            self._most[number] = top // divisor + 1
        return self._most[number]

    # -- decisions --------------------------------------------------------------------------------------------

    def is_positive(self, terms: Terms) -> bool:
        """Whether a polynomial is above zero, for all configurations that stay in the run."""
        low, high = self._bounds(terms)
        if low <= 0 < high:
            low, high = self._corners(terms)
        return low > 0 if low > 0 or high <= 0 else self._put_to_all(terms, zero=False)

    def is_zero(self, terms: Terms) -> bool:
        """Whether a polynomial is zero, for all configurations that stay in the run."""
        low, high = self._bounds(terms)
        if low <= 0 <= high:
            low, high = self._corners(terms)
        return False if low > 0 or high < 0 else self._put_to_all(terms, zero=True)

    def is_above_zero(self, key: object, column: Column) -> bool:
        """The same of doubles."""
        return self._agreed((key, "above"), lambda: self._columns.positive(column))

    def _put_to_all(self, terms: Terms, *, zero: bool) -> bool:
        judge = self._columns.zero if zero else self._columns.positive
        return self._agreed((frozenset(terms.items()), zero), lambda: judge(self._column(terms)))

    def _agreed(self, key: object, judge: Callable[[], Mask]) -> bool:
        """What is true for all that stay in the run: the larger part of those that are in it."""
        mask = self._masks.get(key)
        if mask is None:
            mask = self._masks[key] = judge()
        yes = self._columns.both(self._active, mask)
        many = self._columns.count(yes)
        if many in (0, self._left):
            return many > 0
        is_larger = 2 * many >= self._left
        if is_larger:
            self._active, self._left = yes, many
        else:
            self._active, self._left = self._columns.only(self._active, mask), self._left - many
        self._look()
        return is_larger

    def _look(self) -> None:
        """The ends of the sizes that are left in the run."""
        ends: dict[Monomial, tuple[int, int]] = {
            (i,): self._columns.ends(column, self._active) for i, column in enumerate(self._sizes)
        }
        self._ends = {ONE: (1, 1), **ends}
        if self._left == self.count:
            self._most = {i: ends[(i,)][1] for i in range(len(self._sizes))}

    def _ends_of(self, monomial: Monomial) -> tuple[int, int]:
        found = self._ends.get(monomial)
        if found is not None:
            return found
        if len(monomial) > 1:
            several, one = self._ends_of(monomial[:-1]), self._ends_of(monomial[-1:])
            corners = [x * y for x in several for y in one]
            found = min(corners), max(corners)
        elif monomial[0] in self._inside:
            terms, divisor = self._inside[monomial[0]]
            low, high = self._bounds(terms)
            found = low // divisor, -(-high // divisor)
        else:
            found = self._ends_of_whole[monomial[0]]
        self._ends[monomial] = found
        return found

    def _bounds(self, terms: Terms) -> tuple[int, int]:
        """Numbers that no configuration of the run is below and above."""
        low = high = 0
        for monomial, times in terms.items():
            least, most = self._ends.get(monomial) or self._ends_of(monomial)
            if times > 0:
                low += times * least
                high += times * most
            else:
                low += times * most
                high += times * least
        return low, high

    def _corners(self, terms: Terms) -> tuple[int, int]:
        """Closer bounds: what is linear in each size has its ends where every size has one of its own."""
        numbers = sorted({number for monomial in terms for number in monomial})
        squared = any(len(set(monomial)) < len(monomial) for monomial in terms)
        if squared or len(numbers) > _MOST_CORNERS:
            return self._bounds(terms)
        values = []
        for corner in product(*(self._ends_of((number,)) for number in numbers)):
            at = dict(zip(numbers, corner, strict=True))
            value = 0
            for monomial, times in terms.items():
                for number in monomial:
                    times *= at[number]
                value += times
            values.append(value)
        return min(values), max(values)
