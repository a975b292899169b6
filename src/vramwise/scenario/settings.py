"""What the tables of a scenario share: their keys are fields, each with its kind and its owners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, field, fields
from typing import Any, Self

from vramwise.records import record, replace
from vramwise.scenario.owners import Owners
from vramwise.scenario.values import Kind

KIND, OWNER, UNCOUNTED, INSIDE = "kind", "owner", "uncounted", "inside"
_PLAIN_TYPES = (str, int, float, bool)


@record(kw_only=True, repr=False, slots=False)
class Settings:
    """What the tables of a scenario share. `explicit` holds the keys that were given, not defaulted."""

    __slots__ = ("__dict__", "__weakref__", "kept_hash")  # a hundred settings, by which many caches look

    explicit: frozenset[str] = field(default=frozenset(), compare=False)

    def __getstate__(self) -> dict[str, object]:
        return vars(self)  # another process has other hashes

    def __repr__(self) -> str:
        # fields, not DEFAULTS: without docstrings (-OO) dataclasses show the defaults of a class while it is made
        given = {f.name: getattr(self, f.name) for f in fields(self) if KIND in f.metadata}
        changed = {f.name: given[f.name] for f in fields(self) if f.name in given and given[f.name] != f.default}
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in changed.items())})"

    def to_dict(self) -> dict[str, object]:
        """Every key that has a value, as JSON-able data."""
        table: dict[str, object] = {}
        for name, kind in kinds_of(type(self)).items():
            value = getattr(self, name)
            if value is not None:
                table[name] = value if type(value) in _PLAIN_TYPES else kind.to_json(value)
        return table

    def replace(self, **changes: Any) -> Self:
        """A copy with other values; changed keys count as given."""
        return replace(self, **changes, explicit=self.explicit | set(changes))

    def changes(self, key: str) -> bool:
        """Whether the key was given a value that is not its default (a default contradicts nothing)."""
        return key in self.explicit and getattr(self, key) != defaults_of(type(self))[key]


@record
class Ownership:
    """Whose a key is: everybody's where there are no `owners`.

    `uncounted`: owners that have such a setting too, but whose answer leaves it out. `places`: the nested tables of a
    file that have it, each with its name in there.
    """

    owners: Owners
    uncounted: Owners
    places: Mapping[str, str]

    @property
    def all(self) -> Owners:
        return (*self.owners, *self.uncounted)


_kinds: dict[type[Settings], dict[str, Kind[object]]] = {}
_defaults: dict[type[Settings], dict[str, object]] = {}
_ownership: dict[type[Settings], dict[str, Ownership]] = {}


def kinds_of(table: type[Settings]) -> Mapping[str, Kind[object]]:
    """The kind of every key of a table."""
    if table not in _kinds:
        _kinds[table] = {f.name: f.metadata[KIND] for f in fields(table) if KIND in f.metadata}
    return _kinds[table]


def defaults_of(table: type[Settings]) -> Mapping[str, object]:
    """The default of every key of a table."""
    if table not in _defaults:
        _defaults[table] = {f.name: f.default for f in fields(table) if KIND in f.metadata}
    return _defaults[table]


def ownership_of(table: type[Settings]) -> Mapping[str, Ownership]:
    """Whose every key of a table is."""
    if table not in _ownership:
        _ownership[table] = {f.name: _ownership_of_field(f) for f in fields(table) if KIND in f.metadata}
    return _ownership[table]


def _ownership_of_field(f: Field[object]) -> Ownership:
    owners, uncounted = f.metadata[OWNER], f.metadata[UNCOUNTED]
    places = {owner.table: f.name.removeprefix(f"{owner.table}_") for owner in (*owners, *uncounted) if owner.table}
    home, _, name = f.metadata[INSIDE].partition(".")
    return Ownership(owners, uncounted, {**places, home: name} if home else places)
