"""What a scenario's key may hold: one small class for each kind of value (fields.py: lists, tables, models).

A kind reads a value from a file (`read`), reads the text of a command-line flag (`from_text`), and says the
same as JSON Schema (`schema`). A refusal says what was expected, what was given and, for names, what is near.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from vramwise.errors import ScenarioError, UsageError, clipped, nearest
from vramwise.records import record
from vramwise.units import MIB, parse_bytes


def refusal(path: str, expected: str, value: object) -> ScenarioError:
    return ScenarioError(path, f"expected {expected}, got {shown(value)}")


def unknown_key(path: str, key: object, known: Sequence[str] | Mapping[str, object]) -> ScenarioError:
    """The refusal of a key that a table does not have, with its nearest neighbours."""
    near = nearest(str(key), known)
    meant = f"did you mean {', '.join(near)}?" if near else f"expected one of {', '.join(known)}"
    full = f"{path}.{key}" if path else str(key)
    return ScenarioError(clipped(full), f"unknown key: {clipped(meant, 200)}")


def shown(value: object) -> str:
    """A given value for a message: as JSON writes it, on one short line."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return f"a number of {len(str(abs(value)))} digits" if abs(value) < 10**300 else "a huge number"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    try:
        return clipped(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError):
        return clipped(str(value))


LARGEST_WHOLE_NUMBER = 2**53 - 1
"""Sizes stay below 2^53, so that JSON readers that keep floats read them exactly."""

LONGEST_TEXT = 4096
_MOST_DIGITS = 40
_PERCENT = re.compile(r"(\d{1,2}(?:\.\d{1,3})?) ?%")
_GROUPED = re.compile(r"\d{1,3}(,\d{3}){1,4}")
_THOUSANDS = re.compile(r"(\d{1,9})[kK]")

V = TypeVar("V", covariant=True)
Item = TypeVar("Item", covariant=True)
N = TypeVar("N", str, str | None)
Schema = dict[str, object]
"""A JSON Schema."""


@record(kw_only=True, eq=False, frozen=False)
class Kind(Generic[V]):
    """A kind of value. `optional` keys may be null, which means the same as leaving them out."""

    help: str
    optional: bool = False

    def read(self, value: object, path: str) -> V:
        """The value as the scenario keeps it. Raises ScenarioError with `path`."""
        raise NotImplementedError

    def from_text(self, text: str) -> object:
        """What a file would hold for this flag's text; `read` judges it."""
        return text

    def to_json(self, value: object) -> object:
        """The kept value as JSON-able data."""
        return value

    def schema(self) -> Schema:
        """JSON Schema of everything that `read` takes."""
        raise NotImplementedError

    @property
    def metavar(self) -> str:
        return "TEXT"


@record(kw_only=True, eq=False, frozen=False)
class Whole(Kind[int]):
    """A whole number from `minimum` to `maximum`; true and 3.0 are none."""

    minimum: int = 1
    maximum: int = LARGEST_WHOLE_NUMBER

    def read(self, value: object, path: str) -> int:
        if type(value) is int and self.minimum <= value <= self.maximum:
            return value
        raise refusal(path, self.expected(value), value)

    def expected(self, value: object) -> str:
        if type(value) is int and value > self.maximum:
            limit = "below 2^53" if self.maximum == LARGEST_WHOLE_NUMBER else f"≤ {self.maximum:,}"
            return f"a whole number {limit}"
        thousands = _THOUSANDS.fullmatch(value.strip()) if isinstance(value, str) else None
        if thousands is not None:
            count = int(thousands[1])
            return f"a whole number (such as {count * 1000} or {count * 1024}, written out)"
        if isinstance(value, str) and _GROUPED.fullmatch(value.strip()):
            return f"a whole number (such as {value.strip().replace(',', '')})"
        return f"a whole number ≥ {self.minimum}"

    def from_text(self, text: str) -> object:
        digits = text.removeprefix("-").replace("_", "")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS
        return int(text) if is_number and "__" not in text else text

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}

    @property
    def metavar(self) -> str:
        return "N"


@record(kw_only=True, eq=False, frozen=False)
class Size(Kind[int]):
    """A number of bytes above zero, or its text with the unit written out ("80 GiB")."""

    def read(self, value: object, path: str) -> int:
        size = value
        if isinstance(value, str):
            try:
                size = parse_bytes(value)
            except UsageError as problem:
                raise ScenarioError(path, str(problem)) from None
            if 0 < size < MIB and not set(value.lower()) & set("bkmg"):  # nobody means 24 bytes by 24
                raise refusal(path, f'a size with its unit, such as "{clipped(value.strip())} GiB"', value)
        if type(size) is int and 0 < size <= LARGEST_WHOLE_NUMBER:
            return size
        limit = " below 2^53" if type(size) is int and size > 0 else ""
        raise refusal(path, f'a number of bytes{limit} or a size such as "80 GiB"', value)

    def schema(self) -> Schema:
        text = {"type": "string", "pattern": r"^\s*[0-9]*\.?[0-9]+\s*[A-Za-z]*\s*$"}
        return {"anyOf": [{"type": "integer", "minimum": 1, "maximum": LARGEST_WHOLE_NUMBER}, text]}

    @property
    def metavar(self) -> str:
        return "SIZE"


class Decimal(Kind[float]):
    """A number that a flag's text writes with or without a point."""

    def from_text(self, text: str) -> object:
        try:
            return float(text)
        except ValueError:
            return text


@record(kw_only=True, eq=False, frozen=False)
class Fraction(Decimal):
    """A number from 0 to 1; `above_zero` and `below_one` leave out the ends."""

    above_zero: bool = False
    below_one: bool = False

    def read(self, value: object, path: str) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            low = value > 0 if self.above_zero else value >= 0
            if low and (value < 1 if self.below_one else value <= 1):
                return float(value)
        expected = f"a number {'>' if self.above_zero else '≥'} 0 and {'<' if self.below_one else '≤'} 1"
        if isinstance(value, int | float) and not isinstance(value, bool) and 10 <= value < 100:
            raise ScenarioError(path, f"expected {expected}, got {shown(value)}: did you mean {value / 100:g}?")
        percent = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
        if percent is not None:
            raise ScenarioError(
                path, f"expected {expected}, got {shown(value)}: did you mean {float(percent[1]) / 100:g}?"
            )
        raise refusal(path, expected, value)

    def schema(self) -> Schema:
        low = {"exclusiveMinimum" if self.above_zero else "minimum": 0}
        return {"type": "number", **low, "exclusiveMaximum" if self.below_one else "maximum": 1}

    @property
    def metavar(self) -> str:
        return "FRACTION"


@record(kw_only=True, eq=False, frozen=False)
class Number(Decimal):
    """A number of at least 0."""

    most: float = 1e6

    def read(self, value: object, path: str) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= self.most:
            return float(value)
        raise refusal(path, f"a number from 0 to {self.most:,.0f}", value)

    def schema(self) -> Schema:
        return {"type": "number", "minimum": 0, "maximum": self.most}

    @property
    def metavar(self) -> str:
        return "NUMBER"


@record(kw_only=True, eq=False, frozen=False)
class Share(Decimal):
    """A finite number ≥ 0, one part of a whole that the numbers beside it complete."""

    def read(self, value: object, path: str) -> float:
        if isinstance(value, str):
            value = self.from_text(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST_WHOLE_NUMBER:
            return float(value)
        raise refusal(path, "a number ≥ 0", value)

    def schema(self) -> Schema:
        return {"type": "number", "minimum": 0, "maximum": LARGEST_WHOLE_NUMBER}

    @property
    def metavar(self) -> str:
        return "N"


@record(kw_only=True, eq=False, frozen=False)
class Switch(Kind[bool]):
    """true or false."""

    def read(self, value: object, path: str) -> bool:
        if value is True or value is False:
            return value
        raise refusal(path, "true or false", value)

    def schema(self) -> Schema:
        return {"type": "boolean"}


@record(kw_only=True, eq=False, frozen=False)
class Text(Kind[str]):
    """Any text, not empty."""

    def read(self, value: object, path: str) -> str:
        if type(value) is str and value.strip() and len(value) <= LONGEST_TEXT and "\0" not in value:
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise refusal(path, "text (write it in quotes)", value)
        raise refusal(path, f"text of 1 to {LONGEST_TEXT} characters", value)

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT}


@record(kw_only=True, eq=False, frozen=False)
class Choice(Kind[N]):
    """One of a few names; `spellings` maps what else people write to the name that is kept.

    Letter case, `_` for `-` and blanks for `-` make no difference. A spelling may stand for null. `meant` says of words
    that stand for none of them what people who write them look for.
    """

    names: tuple[str, ...]
    spellings: Mapping[str, N]
    _by_spelling: Mapping[str, N]
    more: Callable[[], Mapping[str, object]] | None = None
    meant: Mapping[str, str] | None = None

    def read(self, value: object, path: str) -> N:
        if type(value) is str:
            by_spelling = self._by_spelling
            if value in by_spelling:
                return by_spelling[value]
            plain = _plain(value)
            if plain in by_spelling:
                return by_spelling[plain]
            if value in _added(self.more):
                return value
        raise ScenarioError(path, self._problem(value))

    def _problem(self, value: object) -> str:
        near = nearest(value, [*self.names, *self.spellings]) if isinstance(value, str) else []
        known = (self.meant or {}).get(_plain(value)) if isinstance(value, str) else None
        meant = f": {known}" if known else f": did you mean {', '.join(near)}?" if near else ""
        listed = ", ".join(self.names[:16]) + (", …" if len(self.names) > 16 else "")
        return f"expected one of {listed}; got {shown(value)}{meant}"

    def schema(self) -> Schema:
        return {"enum": [*dict.fromkeys([*self.names, *self.spellings, *_added(self.more)])]}

    @property
    def metavar(self) -> str:
        return "NAME"


def choice_kind(
    help: str, names: Sequence[str], spellings: Mapping[str, str] | None = None,
    more: Callable[[], Mapping[str, object]] | None = None, meant: Mapping[str, str] | None = None,
) -> Choice[str]:  # fmt: skip
    """A `Choice` with its lookup table worked out once, of those `spellings` that stand for one of the names.

    `more`: names that plug-ins add, asked for when none fits.
    """
    known = {spelling: name for spelling, name in (spellings or {}).items() if name in names}
    by_spelling = {**known, **{name: name for name in names}}
    by_spelling |= {_plain(spelling): name for spelling, name in by_spelling.items()}
    return Choice(help=help, names=tuple(names), spellings=known, _by_spelling=by_spelling, more=more, meant=meant)


def optional_choice_kind(
    help: str, names: Sequence[str], spellings: Mapping[str, str | None] | None = None,
    meant: Mapping[str, str] | None = None,
) -> Choice[str | None]:  # fmt: skip
    """The same of a key that may be null, which a spelling may stand for ("none")."""
    known = {spelling: name for spelling, name in (spellings or {}).items() if name is None or name in names}
    by_spelling: dict[str, str | None] = {**known, **{name: name for name in names}}
    by_spelling |= {_plain(spelling): name for spelling, name in by_spelling.items()}
    return Choice(help=help, optional=True, names=tuple(names), spellings=known, _by_spelling=by_spelling, meant=meant)


def _added(more: Callable[[], Mapping[str, object]] | None) -> Mapping[str, object]:
    return more() if more is not None else {}


def _plain(text: str) -> str:
    return text.strip().lower().replace("_", "-").replace(" ", "-")
