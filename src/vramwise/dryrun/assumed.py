"""`--assume KEY=VALUE`: values that nobody has, as the user says them: by the line that reads them or by operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from vramwise.errors import UsageError, clipped

OPERATIONS: Final = (
    "item",
    "bool",
    "numpy",
    "nonzero",
    "masked_select",
    "unique",
    "unique_consecutive",
    "repeat_interleave",
)
_WORDS: Final = {"true": True, "false": False}


def read_assumptions(given: Iterable[str]) -> dict[str, str]:
    """`FILE.py:LINE=VALUE` or `OPERATION=VALUE`; a value is a number, true, false, or N% of a tensor's elements.

    Raises UsageError for others.
    """
    found = {}
    for text in given:
        key, equals, value = text.rpartition("=")
        file, colon, line = key.rpartition(":")
        is_line = bool(colon) and file.endswith(".py") and line.isdecimal()
        if not equals or not (is_line or key in OPERATIONS):
            raise UsageError(
                f'--assume: expected FILE.py:LINE=VALUE or one of {", ".join(OPERATIONS)} =VALUE, got "{clipped(text)}"'
            )
        _value(value, 1)
        found[key] = value
    return found


def _value(text: str, elements: int) -> float | int | bool:
    """What a value says of a tensor with so many elements."""
    word = text.strip().lower()
    if word in _WORDS:
        return _WORDS[word]
    share = word.endswith("%")
    try:
        number = float(word.removesuffix("%"))
    except ValueError:
        number = float("nan")
    if number != number or abs(number) > _LARGEST or (share and not 0 <= number <= 100):
        raise UsageError(f'--assume: expected a number, true, false or 0% to 100%, got "{clipped(text, 40)}"')
    if share:
        return round(elements * number / 100)
    return int(number) if number == int(number) else number


_LARGEST: Final = 2.0**53


class Assumptions:
    """What was assumed, and whether it was asked for."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self.given = dict(given or {})
        self.used: set[str] = set()

    def value(self, operation: str, line: str, elements: int = 1) -> Any | None:
        """The value of an operation at a line (`path:number`); None where nobody said it."""
        path, _, number = line.rpartition(":")
        for key, text in self.given.items():
            file, colon, at = key.rpartition(":")
            if key == operation or (colon and at == number and Path(path).match(file)):
                self.used.add(key)
                return _value(text, elements)
        return None

    def unused(self) -> list[str]:
        """Keys that nothing asked for."""
        return [key for key in self.given if key not in self.used]
