"""Dataclass fields that carry the kind of their values (how they are read, checked, described, made a flag), and whose
setting they are.

What a helper returns is what the field holds, so that a field's annotation is checked against its kind and default.

Keys that hold several values: lists, tables, and a model's whole config.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TypedDict, TypeVar, Unpack, overload

from vramwise.errors import ScenarioError
from vramwise.records import record
from vramwise.scenario import names
from vramwise.scenario.settings import INSIDE, KIND, OWNER, UNCOUNTED, Owner, Owners
from vramwise.scenario.values import (
    LONGEST_TEXT,
    Item,
    Kind,
    Schema,
    Size,
    Switch,
    Text,
    V,
    Whole,
    choice_kind,
    optional_choice_kind,
    refusal,
    unknown_key,
)


@record(kw_only=True, eq=False, frozen=False)
class Several(Kind[tuple[Item, ...]]):
    """A list of values of one kind; one value may stand for a list of one.

    `separator` splits a text that holds several ("liger,fms").
    """

    item: Kind[Item]
    separator: str | None = ","

    def read(self, value: object, path: str) -> tuple[Item, ...]:
        return self.entries(value, path, "a list")

    def entries(self, value: object, path: str, expected: str) -> tuple[Item, ...]:
        """The values of a list, or of a text that holds several. Raises ScenarioError for anything not `expected`."""
        if isinstance(value, str):
            value = self._parts(value)
        if not isinstance(value, list | tuple):
            raise refusal(path, expected, value)
        return tuple(self.item.read(entry, f"{path}[{i}]") for i, entry in enumerate(value))

    def _parts(self, text: str) -> list[object]:
        parts: list[object] = [part.strip() for part in text.split(self.separator)] if self.separator else [text]
        return [self.item.from_text(str(part)) for part in parts] if isinstance(self.item, Whole) else parts

    def to_json(self, value: object) -> object:
        return list(value) if isinstance(value, tuple) else value

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "array", "items": self.item.schema()}, {"type": "string", "minLength": 1}]}

    @property
    def metavar(self) -> str:
        return "NAME,…" if self.separator else self.item.metavar


@record(kw_only=True, eq=False, frozen=False)
class AllOrSeveral(Kind[str | tuple[Item, ...]]):
    """A list of values of one kind, or the text `whole`, which stands for all there are."""

    item: Kind[Item]
    whole: str

    def read(self, value: object, path: str) -> str | tuple[Item, ...]:
        if value == self.whole:
            return self.whole
        several = Several(help=self.help, item=self.item)
        return several.entries(value, path, f'a list or "{self.whole}"')

    def to_json(self, value: object) -> object:
        return list(value) if isinstance(value, tuple) else value

    def schema(self) -> Schema:
        return Several(help=self.help, item=self.item).schema()

    @property
    def metavar(self) -> str:
        return "NAME,…"


@record(kw_only=True, eq=False, frozen=False)
class Table(Kind[dict[str, V]]):
    """A small table. With `keys` each key has its own kind; without, every key holds `value`."""

    keys: Mapping[str, Kind[V]] | None = None
    value: Kind[V] | None = None

    def read(self, value: object, path: str) -> dict[str, V]:
        if not isinstance(value, Mapping):
            raise refusal(path, "a table", value)
        return {key: self._kind(key, path).read(entry, f"{path}.{key}") for key, entry in value.items()}

    def _kind(self, key: object, path: str) -> Kind[V]:
        kind = self.keys.get(str(key)) if self.keys else self.value
        if kind is None or not isinstance(key, str):
            raise unknown_key(path, key, self.keys or ())
        return kind

    def from_text(self, text: str) -> object:
        """KEY=VALUE,… or a JSON object; any other text as it is, for `read` to refuse."""
        if text.lstrip().startswith("{"):
            try:
                return json.loads(text)
            except ValueError:
                return text
        table: dict[str, object] = {}
        for part in text.split(","):
            key, equals, entry = part.strip().partition("=")
            if not equals:
                return text
            kind = self.keys.get(key) if self.keys else self.value
            table[key] = kind.from_text(entry) if kind else entry
        return table

    def to_json(self, value: object) -> object:
        return dict(value) if isinstance(value, Mapping) else value

    def schema(self) -> Schema:
        if self.keys is None:
            return {"type": "object", "additionalProperties": self.value.schema() if self.value else False}
        properties = {key: kind.schema() for key, kind in self.keys.items()}
        return {"type": "object", "properties": properties, "additionalProperties": False}

    @property
    def metavar(self) -> str:
        return "KEY=VALUE,…"


@record(kw_only=True, eq=False, frozen=False)
class ModelReference(Kind[str | Mapping[str, object]]):
    """A model's name, URL or path, or a table that holds a whole config.json."""

    def read(self, value: object, path: str) -> str | Mapping[str, object]:
        if isinstance(value, Mapping):
            if value:
                return value
            raise ScenarioError(path, "the table is empty: expected the keys of a config.json")
        if type(value) is str and value.strip() and len(value) <= LONGEST_TEXT and "\0" not in value:
            return value
        expected = "a model's name, URL or path, or a table that holds a config.json"
        raise refusal(path, expected, value)

    def to_json(self, value: object) -> object:
        return value if isinstance(value, str) else _without_infinities(value)

    def schema(self) -> Schema:
        text = {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT}
        return {"anyOf": [text, {"type": "object", "minProperties": 1}]}


@record(kw_only=True, eq=False, frozen=False)
class ConfigKeys(Kind[Mapping[str, object]]):
    """Keys of a model's config.json with other values: a table, or the same as JSON."""

    def read(self, value: object, path: str) -> Mapping[str, object]:
        if isinstance(value, Mapping):
            return value
        raise refusal(path, "keys of a config.json as a table, or as JSON", value)

    def from_text(self, text: str) -> object:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):  # deep brackets
            return text

    def to_json(self, value: object) -> object:
        return _without_infinities(value)

    def schema(self) -> Schema:
        return {"type": "object"}

    @property
    def metavar(self) -> str:
        return "JSON"


def _without_infinities(value: object) -> object:
    """A config as strict JSON: an infinite bound (Mamba-2's time_step_limit) becomes the text "Infinity"."""
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _without_infinities(entry) for key, entry in value.items()}
    return [_without_infinities(entry) for entry in value] if isinstance(value, list | tuple) else value


D = TypeVar("D")


class Whose(TypedDict, total=False):
    """Whose a key is.

    `owner`: those that have such a setting and whose answer follows it, everybody where none is named; `uncounted`:
    those that have it too, but whose answer leaves it out; `inside`: a nested table and its name in there, for what
    has no owner of that table.
    """

    owner: Owner | Owners
    uncounted: Owners
    inside: str


def key(kind: Kind[V], default: D, *, hash: bool | None = None, **whose: Unpack[Whose]) -> V | D:
    """A field of this kind."""
    owner = whose.get("owner", ())
    owners = (owner,) if isinstance(owner, Owner) else owner
    metadata = {
        KIND: kind, OWNER: owners, UNCOUNTED: whose.get("uncounted", ()), INSIDE: whose.get("inside", ""),
    }  # fmt: skip
    return field(default=default, hash=hash, metadata=metadata)


def choice(
    help: str, names_: Sequence[str], spellings: Mapping[str, str] | None = None, *, default: str | None = None,
    more: Callable[[], Mapping[str, object]] | None = None, meant: Mapping[str, str] | None = None,
    **whose: Unpack[Whose],
) -> str:  # fmt: skip
    """One of several names, the first where none is given; `more`: names that plug-ins add; `meant` as in `maybe`."""
    return key(choice_kind(help, names_, spellings, more, meant), default or names_[0], **whose)


def maybe(
    help: str, names_: Sequence[str], spellings: Mapping[str, str | None] | None = None, *,
    meant: Mapping[str, str] | None = None, **whose: Unpack[Whose],
) -> str | None:  # fmt: skip
    """One of several names, or open; `meant`: what people look for who write something else."""
    return key(optional_choice_kind(help, names_, spellings, meant), None, **whose)


def dtype_name(help: str, names_: Sequence[str] = names.DTYPES, **whose: Unpack[Whose]) -> str | None:
    return maybe(help, names_, names.DTYPE_SPELLINGS, **whose)


@overload
def whole(help: str, default: None = None, *, minimum: int = 1, **whose: Unpack[Whose]) -> int | None: ...
@overload
def whole(help: str, default: int, *, minimum: int = 1, **whose: Unpack[Whose]) -> int: ...
def whole(help: str, default: int | None = None, *, minimum: int = 1, **whose: Unpack[Whose]) -> int | None:
    return key(Whole(help=help, optional=default is None, minimum=minimum), default, **whose)


@overload
def switch(help: str, default: None = None, **whose: Unpack[Whose]) -> bool | None: ...
@overload
def switch(help: str, default: bool, **whose: Unpack[Whose]) -> bool: ...
def switch(help: str, default: bool | None = None, **whose: Unpack[Whose]) -> bool | None:
    return key(Switch(help=help, optional=default is None), default, **whose)


def size(help: str, **whose: Unpack[Whose]) -> int | None:
    return key(Size(help=help, optional=True), None, **whose)


def text(help: str, **whose: Unpack[Whose]) -> str | None:
    return key(Text(help=help, optional=True), None, **whose)


def texts(help: str, *, separator: str | None = ",", **whose: Unpack[Whose]) -> tuple[str, ...]:
    return key(Several(help=help, item=Text(help="one name"), separator=separator), (), **whose)
