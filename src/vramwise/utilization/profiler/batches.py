"""What the events of one batch say of one thing, read together: the same as of each alone, in a fraction of the time.

Most batches have nothing but numbers of usual sizes in a column, which a few passes at C's speed tell. Where they do
not, each value is read by itself.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, NamedTuple

from vramwise.utilization.profiler.recording import ABSENT
from vramwise.utilization.profiler.times import LONGEST_FLOAT_US, LONGEST_PLAIN, NS_PER_US, nanoseconds

LARGEST: Final = 2**62
MOST_US: Final = LARGEST // NS_PER_US
ABSENT_TEXTS: Final = (b"", b"null")
NAN: Final = float("nan")
"""One object, so that equal events with it are found to be equal."""


def whole(value: object) -> int:
    """A whole number that is not negative; ABSENT for anything else (ROCm writes some as text)."""
    if type(value) is int and 0 <= value < LARGEST:
        return value
    if value is None:
        return ABSENT
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
        return value if value < LARGEST else ABSENT
    return ABSENT


def wholes(values: list[Any]) -> list[int]:
    """`whole` of each."""
    if set(map(type, values)) == {int} and min(values) >= 0 and max(values) < LARGEST:
        return values
    return list(map(whole, values))


def signed(values: list[Any]) -> list[int]:
    """Whole numbers with their signs; 0 for anything else."""
    if set(map(type, values)) == {int} and min(values) > -LARGEST and max(values) < LARGEST:
        return values
    return [value if isinstance(value, int) and abs(value) < LARGEST else 0 for value in values]


def fraction(value: object) -> float:
    """A double; NAN for what is none."""
    if isinstance(value, str):
        try:
            value = float(value) if len(value) < 40 else None
        except ValueError:
            value = None
    return float(value) if isinstance(value, int | float) and abs(value) < LARGEST else NAN


def fractions(values: list[Any]) -> list[float]:
    """`fraction` of each; whole numbers stay what they are."""
    kinds = set(map(type, values))
    if kinds <= _NUMBERS_AND_NONE:
        known = [value for value in values if value is not None] if type(None) in kinds else values
        if not known or (min(known) > -LARGEST and max(known) < LARGEST):
            return known if len(known) == len(values) else [NAN if value is None else value for value in values]
    return list(map(fraction, values))


_NUMBERS_AND_NONE: Final = {int, float, type(None)}


class Times(NamedTuple):
    """Whole nanoseconds of each, and whether none was written with a fraction of a microsecond."""

    values: list[int]
    no_fraction: bool


def moments(values: list[Any]) -> list[int]:
    """The times of a batch in which none is absent."""
    found = times(values)
    return [nanoseconds(one if type(one) is int else bytes(one)) for one in values] if found is None else found.values


def times(values: list[Any]) -> Times | None:
    """The times of a batch; None where one of them is absent. Raises SourceError for one of no plausible size."""
    kinds = set(map(type, values))
    if kinds == {int}:
        if min(values) > -MOST_US and max(values) < MOST_US:
            return Times([value * NS_PER_US for value in values], True)
        return Times(list(map(nanoseconds, values)), True)
    if kinds <= {int, float}:
        if min(values) > -LONGEST_FLOAT_US and max(values) < LONGEST_FLOAT_US:
            return Times(list(map(round, [value * NS_PER_US for value in values])), True)
        return Times(list(map(nanoseconds, values)), True)
    if not kinds.isdisjoint((int, float, type(None))):
        return None
    return _of_texts(list(map(bytes, values)))


def _of_texts(texts: list[bytes]) -> Times | None:
    if {text[-4:-3] for text in texts} == {b"."} and max(map(len, texts)) <= LONGEST_PLAIN:  # as Kineto writes them
        with suppress(ValueError):
            found = list(map(int, b" ".join(texts).replace(b".", b"").split(b" ")))
            if len(found) == len(texts):
                return Times(found, False)
    if any(text in ABSENT_TEXTS for text in texts):
        return None
    return Times(list(map(nanoseconds, texts)), all(b"." not in text for text in texts))
