"""Microseconds as JSON writes them, as whole nanoseconds: a double is too coarse for 1.7e15 microseconds."""

from __future__ import annotations

from ...errors import SourceError, clipped

NS_PER_US = 1000
FARTHEST_NS = 2**62
LONGEST_TEXT = 40


def nanoseconds(text: bytes | str) -> int:
    """Whole nanoseconds of a decimal number of microseconds; finer digits are rounded half to even.

    Raises SourceError for what is not a number of a plausible size.
    """
    if isinstance(text, str):
        text = text.encode("utf-8", "replace")
    whole, _, fraction = text.partition(b".")
    try:
        if len(fraction) <= 3 and len(whole) <= 18 and whole.isdigit():
            return int(whole) * NS_PER_US + (int(fraction.ljust(3, b"0")) if fraction else 0)
    except ValueError:
        pass
    return _exotic(text)


def _exotic(text: bytes) -> int:
    """Signs, exponents, and more digits than a nanosecond has."""
    from decimal import Decimal, InvalidOperation

    try:
        value = Decimal(text.strip(b'" ').decode("ascii")) if len(text) <= LONGEST_TEXT else Decimal("NaN")
        if value.is_finite() and abs(value.adjusted()) < 40 and abs(scaled := value * NS_PER_US) < FARTHEST_NS:
            return round(scaled)
    except (InvalidOperation, UnicodeDecodeError):
        pass
    raise SourceError(f'"{clipped(text.decode("utf-8", "replace"))}" is not a time in microseconds')
