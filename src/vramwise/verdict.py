"""Whether a need fits a room: one rule for training, serving, generation and loading."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, overload

from vramwise.result import Quantity, Verdict, VerdictWord
from vramwise.site import kept_in_force
from vramwise.units import format_bytes

INTERVAL_Z: Final = 1.6448536269514722
"""A 90 % interval is ± so many standard deviations of a normal: a twentieth lies beyond each end."""
BEYOND: Final = 0.05
SURE: Final = 0.95
BELOW_SURE: Final = 0.9499
TAIL_ABOVE: Final = 0.27
TAIL_BELOW: Final = 0.08
"""How far beyond its interval a need lies on average where it does lie there, as a share of the end that it passed.

Counters of whole processes in benchmarks/cases/training*.jsonl: 31 of 459 above the high end, half of them by more than
19 %, and 22 below the low end, half of them by more than 5.7 % (an exponential's median is ln 2 times its mean).
"""


class LateReasons(Sequence[str]):
    """Reasons whose rest is worked out once somebody reads them: advice takes many estimates, and sweeps read none."""

    def __init__(self, first: Iterable[str], late: Callable[[], Iterable[str]]) -> None:
        self._said, self._late = tuple(first), kept_in_force(late)
        self._whole = False

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
    marks it follows a normal of that side's width, beyond the ends an exponential (TAIL_ABOVE, TAIL_BELOW).
    """
    low, expected, high = needed.low, needed.expected, needed.high
    if usable_bytes >= high:
        return SURE + BEYOND * (-math.expm1(-(usable_bytes / high - 1) / TAIL_ABOVE) if high > 0 else 1.0)
    if usable_bytes >= expected:
        return min(_normal(INTERVAL_Z * (usable_bytes - expected) / (high - expected)), BELOW_SURE)
    if usable_bytes > low:
        return max(_normal(-INTERVAL_Z * (expected - usable_bytes) / (expected - low)), BEYOND)
    return BEYOND * math.exp(-(1 - usable_bytes / low) / TAIL_BELOW) if low > 0 else BEYOND


def _normal(deviations: float) -> float:
    return 0.5 * (1 + math.erf(deviations / math.sqrt(2)))
