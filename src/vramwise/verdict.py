"""Whether a need fits a room: one rule for training, serving, generation and loading."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final, Self, overload

from vramwise.result import Quantity, Verdict, VerdictWord
from vramwise.site import kept_in_force
from vramwise.units import format_bytes

WITHIN: Final = ((0.0, 0.5), (0.1, 0.715), (0.25, 0.815), (0.5, 0.914), (1.0, 0.95))
"""Share of needs that lie below so many distances from the expected one to the interval's high end, and above as many
towards its low end: the 1,033 counters of training in benchmarks/intervals/scores.csv by intervals made without their
own source (0.72, 0.80; 0.83, 0.80; 0.914, 0.914 to the two sides). Most lie close, far more than a normal has there."""
BEYOND: Final = 0.05
SURE: Final = 0.95
BELOW_SURE: Final = 0.9499
TAIL_ABOVE: Final = 0.22
TAIL_BELOW: Final = 0.11
"""How far beyond its interval a need lies on average where it does lie there, as a share of the end that it passed.

The same counters: 38 above the high end, half of them by more than 15 %, and 34 below the low end, half of them by more
than 7.6 % (an exponential's median is ln 2 times its mean).
"""


class Advice(str):
    """A reason that says what to change, to the `values` of these keys."""

    values: Mapping[str, object]

    def __new__(cls, text: str, values: Mapping[str, object] = MappingProxyType({})) -> Self:
        said = super().__new__(cls, text)
        said.values = values
        return said

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), dict(self.values))


class Spread(str):
    """A reason that says what an engine leaves on the host by itself, so that the rest fits."""

    __slots__ = ()


class LateReasons(Sequence[str]):
    """Reasons whose rest is worked out once somebody reads them: advice takes many estimates, and sweeps read none.

    `but_changes`: those of the rest that do not say what to set, where it takes less to find these alone.
    """

    def __init__(
        self, first: Iterable[str], late: Callable[[], Iterable[str]],
        but_changes: Callable[[], Iterable[str]] | None = None,
    ) -> None:  # fmt: skip
        self._said = tuple(first)
        self._late = kept_in_force(lambda: tuple(late()))  # a generator that is read later would be without the site
        self._but_changes = kept_in_force(lambda: tuple(but_changes())) if but_changes is not None else None
        self._whole = False

    def without_changes(self) -> tuple[str, ...]:
        """The reasons that do not say what to set, with no more work than that takes."""
        if self._whole or self._but_changes is None:
            return tuple(reason for reason in self._all() if not isinstance(reason, Advice))
        return (*self._said, *self._but_changes())

    def _all(self) -> tuple[str, ...]:
        if not self._whole:
            self._said, self._whole = (*self._said, *self._late()), True
        return self._said

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())

    def __eq__(self, other: object) -> bool:
        return self._all() == tuple(other) if isinstance(other, tuple | LateReasons) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return repr(self._all())

    def __reduce__(self) -> tuple[object, ...]:
        return tuple, (self._all(),)


def verdict_of(needed: Quantity, usable_bytes: int, reasons: Iterable[str] = (), *, runs: bool = True) -> Verdict:
    """What is said of a need and the room for it; where it `runs` in no room whatever, the reasons say why.

    *does not fit* where the expected need is above the room, *tight* where it is not and the probability of fitting is
    below 95 %, *fits* otherwise. A smaller need (each end of its interval smaller or equal) never gets a worse word or
    a lower probability.
    """
    headroom = int(usable_bytes - needed.expected)
    if not runs:
        return Verdict("does not fit", headroom, 0.0, tuple(reasons))
    probability = probability_of_fitting(needed, usable_bytes)
    said: Sequence[str] = reasons if isinstance(reasons, LateReasons) else tuple(reasons)
    word = word_of(needed.expected, needed.high, usable_bytes)
    if word == "tight":
        high, usable = format_bytes(int(needed.high)), format_bytes(usable_bytes)
        said = (
            f"tight: it fits with {percent(probability)}; the need may be as much as {high}, with {usable} usable",
            *said,
        )
    return Verdict(word, headroom, math.floor(probability * 10**4) / 10**4, said)


def word_of(expected: float, high: float, usable_bytes: int) -> VerdictWord:
    """The verdict's word on a need that runs on the card, whose interval ends at `high`."""
    if int(usable_bytes - expected) < 0:
        return "does not fit"
    return "tight" if high > usable_bytes else "fits"


def percent(probability: float) -> str:
    """A probability as a person reads it, cut and not rounded: 94.9 % is below 95 %."""
    return f"{math.floor(100 * probability)} %"


def probability_of_fitting(needed: Quantity, usable_bytes: int) -> float:
    """Probability that the need is not above the room.

    Half of it lies on either side of the expected need and a twentieth beyond each end of the interval; between these
    marks it follows what measured counters did (WITHIN), beyond the ends an exponential (TAIL_ABOVE, TAIL_BELOW).
    """
    low, expected, high = needed.low, needed.expected, needed.high
    if usable_bytes >= high:
        return SURE + BEYOND * (-math.expm1(-(usable_bytes / high - 1) / TAIL_ABOVE) if high > 0 else 1.0)
    if usable_bytes >= expected:
        return min(_within((usable_bytes - expected) / (high - expected)), BELOW_SURE)
    if usable_bytes > low:
        return max(1 - _within((expected - usable_bytes) / (expected - low)), BEYOND)
    return BEYOND * math.exp(-(1 - usable_bytes / low) / TAIL_BELOW) if low > 0 else BEYOND


def _within(distance: float) -> float:
    """WITHIN, in straight lines from one mark to the next."""
    for (start, less), (end, more) in pairwise(WITHIN):
        if distance <= end:
            return less + (more - less) * (distance - start) / (end - start)
    return SURE
