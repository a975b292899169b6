"""A whole number that hangs on a configuration's sizes: a polynomial in them and in quotients rounded to whole numbers.

It goes through the code of an answer in place of an int. Sums and products are done once for all configurations; a
comparison is put to them (`Points`), which go on with those that agree. What would make one number of it (`int`,
`float`, an index) raises ManyNumbers: nothing is taken silently from one configuration for another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from operator import add, mul, sub, truediv
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramwise.points.columns import Column
    from vramwise.points.run import Points

Monomial = tuple[int, ...]
"""The numbers of the sizes whose product it is, in order; `()` is one."""
Terms = dict[Monomial, int]
ONE: Monomial = ()


class ManyNumbers(TypeError):
    """Code asked for one number where there are many."""


class Expression:
    """A polynomial with whole coefficients over the sizes of `points`; see the module."""

    __slots__ = ("points", "terms")

    def __init__(self, points: Points, terms: Terms) -> None:
        self.points, self.terms = points, terms

    def __add__(self, other: Any) -> Any:
        if type(other) is int:
            if not other:
                return self
            terms = dict(self.terms)
            _put(terms, ONE, terms.get(ONE, 0) + other)
            return of(self.points, terms)
        if not isinstance(other, Expression):
            return _real(add, self, other)
        return of(self.points, _sum(self.terms, other.terms))

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        if type(other) is int:
            return self + -other
        if not isinstance(other, Expression):
            return _real(sub, self, other)
        return of(self.points, _difference(self.terms, other.terms))

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        if type(other) is int:
            if other in (0, 1):
                return self if other else 0
            return Expression(self.points, {monomial: times * other for monomial, times in self.terms.items()})
        if isinstance(other, Fraction):
            numerator = self * other.numerator
            return numerator if other.denominator == 1 else Share(numerator, other.denominator)
        if not isinstance(other, Expression):
            return _real(mul, self, other)
        terms: Terms = {}
        for left, x in self.terms.items():
            for right, y in other.terms.items():
                monomial = tuple(sorted(left + right))
                _put(terms, monomial, terms.get(monomial, 0) + x * y)
        return of(self.points, terms)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return _real(truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _real(truediv, other, self)

    def __floordiv__(self, divisor: Any) -> Any:
        if isinstance(divisor, Expression):
            return self._over(divisor)
        if type(divisor) is not int or divisor <= 0:
            return NotImplemented
        whole: Terms = {}
        rest: Terms = {}
        for monomial, times in self.terms.items():
            quotient, left = divmod(times, divisor)
            _put(whole, monomial, quotient)
            _put(rest, monomial, left)
        found = of(self.points, whole)
        if not rest or (len(rest) == 1 and ONE in rest):
            return found
        return self.points.quotient(rest, divisor) + found

    def _over(self, divisor: Expression) -> Any:
        """The polynomial without a size, or a product of some, that all its terms have."""
        (monomial, times), *others = divisor.terms.items()
        terms: Terms = {}
        for own, coefficient in self.terms.items():
            left = list(own)
            for number in monomial:
                if number not in left:
                    raise ManyNumbers
                left.remove(number)
            terms[tuple(left)] = coefficient
        if others or times != 1:
            raise ManyNumbers
        return of(self.points, terms)

    def __mod__(self, divisor: Any) -> Any:
        if type(divisor) is not int or divisor <= 0:
            return NotImplemented
        return self - self // divisor * divisor

    def __round__(self) -> Expression:
        return self

    @property
    def one(self) -> Any:
        """Its value for one of the configurations that the run goes on with."""
        return self.points.one(self.terms)

    def __int__(self) -> int:
        raise ManyNumbers

    def __float__(self) -> float:
        raise ManyNumbers

    def __abs__(self) -> int:
        raise ManyNumbers

    def __rfloordiv__(self, other: Any) -> Any:
        raise ManyNumbers

    __rmod__ = __pow__ = __rpow__ = __rfloordiv__

    def __format__(self, how: str) -> str:
        return "…"  # in sentences of a run, which nobody reads

    def __index__(self) -> int:
        raise ManyNumbers

    __hash__ = object.__hash__  # a key of what was worked out for it and for no other

    def __bool__(self) -> bool:
        return not self.points.is_zero(self.terms)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Expression | int):
            return False
        difference = self - other
        return self.points.is_zero(difference.terms) if isinstance(difference, Expression) else difference == 0

    def __gt__(self, other: Any) -> bool:
        return _is_positive(self - other)

    def __lt__(self, other: Any) -> bool:
        return _is_positive(other - self)

    def __ge__(self, other: Any) -> bool:
        return not _is_positive(other - self)

    def __le__(self, other: Any) -> bool:
        return not _is_positive(self - other)

    def __repr__(self) -> str:
        return " + ".join(f"{times}·{monomial}" for monomial, times in self.terms.items())


class Share:
    """A whole number over another one, which `round` makes whole again."""

    __slots__ = ("denominator", "numerator")

    def __init__(self, numerator: Any, denominator: int) -> None:
        self.numerator, self.denominator = numerator, denominator

    def __round__(self) -> Any:
        return self.numerator.points.half_even(self.numerator.terms, self.denominator)


def _real(operation: Callable[..., Any], left: Any, right: Any) -> Any:
    """A fraction, which is no polynomial any more."""
    if not isinstance(left, Expression | float | int) or not isinstance(right, Expression | float | int):
        return NotImplemented
    return Real(operation, left, right)


def of(points: Points, terms: Terms) -> Any:
    """The polynomial, or the int that it is."""
    if len(terms) > 1:
        return Expression(points, terms)
    if not terms:
        return 0
    return terms[ONE] if ONE in terms else Expression(points, terms)


def _sum(left: Terms, right: Terms) -> Terms:
    terms = left.copy()
    for monomial, times in right.items():
        if monomial not in terms:
            terms[monomial] = times
        elif total := terms[monomial] + times:
            terms[monomial] = total
        else:
            del terms[monomial]
    return terms


def _difference(left: Terms, right: Terms) -> Terms:
    terms = left.copy()
    for monomial, times in right.items():
        if monomial not in terms:
            terms[monomial] = -times
        elif total := terms[monomial] - times:
            terms[monomial] = total
        else:
            del terms[monomial]
    return terms


def _put(terms: Terms, monomial: Monomial, times: int) -> None:
    if times:
        terms[monomial] = times
    else:
        terms.pop(monomial, None)


def _is_positive(difference: Any) -> bool:
    if isinstance(difference, Expression):
        return difference.points.is_positive(difference.terms)
    found: bool = difference > 0
    return found


_NAMES: dict[Callable[..., Any], str] = {add: "+", sub: "-", mul: "*", truediv: "/", math.hypot: "hypot"}


class Real:
    """A fraction that hangs on the sizes: an operation on numbers, expressions and other fractions; `key` says which.

    Its column is worked out by the same operations on doubles as Python's floats have, so that rounding gives the same.
    """

    __slots__ = ("column", "key", "points")

    def __init__(self, operation: Callable[..., Any], *operands: Any) -> None:
        self.points: Any = next(one.points for one in operands if isinstance(one, Expression | Real))
        self.key = _NAMES[operation], *(_key(one) for one in operands)
        self.column: Column = self.points.real(self.key, operation, operands)

    def __add__(self, other: Any) -> Real:
        return Real(add, self, other)

    def __radd__(self, other: Any) -> Real:
        return Real(add, other, self)

    def __sub__(self, other: Any) -> Real:
        return Real(sub, self, other)

    def __rsub__(self, other: Any) -> Real:
        return Real(sub, other, self)

    def __mul__(self, other: Any) -> Real:
        return Real(mul, self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Real:
        return Real(truediv, self, other)

    def __rtruediv__(self, other: Any) -> Real:
        return Real(truediv, other, self)

    def __round__(self) -> Expression:
        found: Expression = self.points.whole(self.key, self.column, round)
        return found

    def __ceil__(self) -> Expression:
        found: Expression = self.points.whole(self.key, self.column, math.ceil)
        return found

    def __gt__(self, other: Any) -> bool:
        return self._is("above", other)

    def __lt__(self, other: Any) -> bool:
        return self._is("below", other)

    def __ge__(self, other: Any) -> bool:
        return not self._is("below", other)

    def __le__(self, other: Any) -> bool:
        return not self._is("above", other)

    def __bool__(self) -> bool:
        return self._is("above", 0) or self._is("below", 0)

    def _is(self, how: str, other: Any) -> bool:
        """Whether it is above or below another number."""
        difference = self - other if how == "above" else other - self
        found: bool = self.points.is_above_zero(difference.key, difference.column)
        return found


def _key(operand: Any) -> object:
    if isinstance(operand, Real):
        return operand.key
    return frozenset(operand.terms.items()) if isinstance(operand, Expression) else (type(operand).__name__, operand)
