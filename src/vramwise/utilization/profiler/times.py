"""Microseconds as JSON writes them, as whole nanoseconds: a double is too coarse for 1.7e15 microseconds."""

from __future__ import annotations

from vramwise.errors import SourceError, clipped

NS_PER_US = 1000
FARTHEST_NS = 2**62
LONGEST_TEXT = 40
LONGEST_PLAIN = 19
"""Eighteen digits and a point, or a sign: below FARTHEST_NS."""
LONGEST_FLOAT_US = 1e12
"""Up to here, eleven days, a double is finer than a nanosecond: good for durations, not for times of day."""


def nanoseconds(given: int | float | bytes) -> int:
    """Whole nanoseconds of microseconds: a whole number, a decimal's text, or a float up to LONGEST_FLOAT_US.

    Finer digits are rounded half to even. Raises SourceError for what is not a number of a plausible size.
    """
    if type(given) is float and -LONGEST_FLOAT_US < given < LONGEST_FLOAT_US:
        return round(given * NS_PER_US)
    if isinstance(given, int | float):
        return _of_number(given)
    try:
        if given[-4:-3] == b"." and len(given) <= LONGEST_PLAIN:
            return int(given.replace(b".", b"", 1))  # 12.345 µs are 12345 ns: the point moves three places
        whole, _, fraction = given.partition(b".")
        if len(fraction) <= 3 and len(whole) <= LONGEST_PLAIN - 4:
            return int(whole + fraction.ljust(3, b"0"))
    except ValueError:
        pass
    return _of_text(given)


def _of_number(given: int | float) -> int:
    if isinstance(given, int) and abs(given) * NS_PER_US < FARTHEST_NS:
        return given * NS_PER_US
    if abs(given) < LONGEST_FLOAT_US:
        return round(given * NS_PER_US)
    raise _refusal(str(given))


def _of_text(text: bytes) -> int:
    """Signs, exponents, and more digits than a nanosecond has."""
    from decimal import Decimal, InvalidOperation

    try:
        value = Decimal(text.strip(b'" ').decode("ascii")) if len(text) <= LONGEST_TEXT else Decimal("NaN")
        if value.is_finite() and abs(value.adjusted()) < 40 and abs(scaled := value * NS_PER_US) < FARTHEST_NS:
            return round(scaled)
    except (InvalidOperation, UnicodeDecodeError):
        pass
    raise _refusal(text.decode("utf-8", "replace"))


def _refusal(text: str) -> SourceError:
    return SourceError(f'"{clipped(text)}" is not a time in microseconds')
