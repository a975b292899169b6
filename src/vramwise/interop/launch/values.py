"""Values as the engines' command lines write them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TypeGuard

from vramwise.errors import UsageError, clipped
from vramwise.records import record
from vramwise.units import GB, GIB, KB, KIB, MB, MIB

Reader = Callable[[str], object]

_SIZES = {"": 1, "k": KB, "K": KIB, "m": MB, "M": MIB, "g": GB, "G": GIB, "t": KB * GB, "T": KIB * GIB}
_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kKmMgGtT]?)i?[bB]?")
_ON = frozenset({"", "1", "on", "true", "yes", "enabled"})
_OFF = frozenset({"0", "off", "false", "no", "disabled"})
_AUTO = frozenset({"auto", "none", "default"})


@record
class Meaning:
    """The scenario's key that a flag sets, and how its text is read."""

    key: str
    read: Reader


def whole(text: str) -> int | None:
    """A whole number; 32k is 32,000 and 32K is 32,768, as vLLM reads them; auto and -1 are none.

    Raises UsageError for any other text.
    """
    if text.lower() in _AUTO or text == "-1":
        return None
    match = _NUMBER.fullmatch(text.strip().replace("_", ""))
    if match is None:
        raise UsageError(f'expected a whole number, got "{clipped(text)}"')
    return int(float(match.group(1)) * _SIZES[match.group(2)]) if "." in match.group(1) else (
        int(match.group(1)) * _SIZES[match.group(2)]
    )  # fmt: skip


def positive(text: str) -> int | None:
    """A whole number of which 0 and less mean the engine's own choice."""
    if text.startswith("-"):
        return None
    return whole(text) or None


def fraction(text: str) -> float:
    """A number with a point. Raises UsageError for any other text."""
    try:
        return float(text)
    except ValueError:
        raise UsageError(f'expected a number, got "{clipped(text)}"') from None


def at_least_one(text: str) -> float | None:
    """A number that is 1 or more; a smaller one says nothing."""
    value = fraction(text)
    return value if value >= 1 else None


def switch(text: str) -> bool:
    """On or off in all the ways engines write it. Raises UsageError for any other text."""
    word = text.lower()
    if word in _ON or word in _OFF:
        return word in _ON
    raise UsageError(f'expected on or off, got "{clipped(text)}"')


def maybe_switch(text: str) -> bool | None:
    """On, off, or auto."""
    return None if text.lower() in _AUTO else switch(text)


def word(text: str) -> str | None:
    """A name; auto and none are no choice."""
    return None if text.lower() in _AUTO else text


def is_number(word: str) -> bool:
    """Whether a word is a number, negative ones included, rather than a flag."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def table(text: str) -> dict[str, object]:
    """A JSON object, or the older `image=2,video=1`. Raises UsageError for any other text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        pairs = [pair.partition("=") for pair in text.split(",")]
        if not all(equals for _, equals, _ in pairs):
            raise UsageError(f'expected a JSON object, got "{clipped(text)}"') from None
        return {key.strip(): whole(number) for key, _, number in pairs}
    if not isinstance(value, dict):
        raise UsageError(f'expected a JSON object, got "{clipped(text)}"')
    return value


def json_or_text(text: str) -> object:
    """What a word is as JSON, else as a size (80g), else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return whole(text) if _NUMBER.fullmatch(text) else text


def whole_in(table: Mapping[str, object], key: str, default: int = 1) -> int:
    """The whole number of a table that was read already; `default` where it has none."""
    value = table.get(key)
    return value if isinstance(value, int) else default


def is_table(value: object) -> TypeGuard[Mapping[str, object]]:
    """Whether a value of a file is a table."""
    return isinstance(value, Mapping)
