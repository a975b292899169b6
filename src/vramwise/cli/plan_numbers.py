"""Numbers of a plan's wishes on the command line."""

from __future__ import annotations

from vramwise.errors import UsageError, clipped

_LETTERS = {"k": 3, "m": 6, "b": 9, "t": 12}


def number(name: str, text: str) -> float:
    """A number, with k, m, b or t behind it for thousands to trillions. Raises UsageError for what is no number."""
    power = _LETTERS.get(text[-1:].lower(), 0)
    try:
        value = float(text[:-1] if power else text) * 10.0**power
    except ValueError:
        value = float("nan")
    if not abs(value) < 1e18:
        raise UsageError(f"{name}: expected a number such as 2.5 or 15T, got {clipped(text)!r}")
    return value


def positive(name: str, text: str | None) -> float | None:
    """The same above 0. Raises UsageError for any other."""
    if text is None:
        return None
    value = number(name, text)
    if value <= 0:
        raise UsageError(f"{name}: expected a number above 0, got {clipped(text)}")
    return value
