"""A fraction that hangs on a configuration's sizes: what a share or a ratio makes of a whole number.

Its column is worked out by the same operations on doubles as Python's floats have, so that rounding gives the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import add, mul, sub, truediv
from typing import Any

from vramwise.points.columns import Column
from vramwise.points.expression import Expression

_NAMES: dict[Callable[..., Any], str] = {add: "+", sub: "-", mul: "*", truediv: "/", math.hypot: "hypot"}


class Real:
    """An operation on numbers, expressions and other fractions; `key` says which."""

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
