"""What the tables of a scenario share: their keys are fields, each with its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from vramwise.scenario.fields import KIND
from vramwise.scenario.values import Kind

_PLAIN_TYPES = (str, int, float, bool)


@dataclass(frozen=True, kw_only=True, repr=False)
class Settings:
    """What the tables of a scenario share. `explicit` holds the keys that were given, not defaulted."""

    explicit: frozenset[str] = field(default=frozenset(), compare=False)

    def __repr__(self) -> str:
        # fields, not DEFAULTS: without docstrings (-OO) dataclasses show the defaults of a class while it is made
        given = {f.name: getattr(self, f.name) for f in fields(self) if KIND in f.metadata}
        changed = {f.name: given[f.name] for f in fields(self) if f.name in given and given[f.name] != f.default}
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in changed.items())})"

    def to_dict(self) -> dict[str, Any]:
        """Every key that has a value, as JSON-able data."""
        table: dict[str, Any] = {}
        for name, kind in kinds_of(type(self)).items():
            value = getattr(self, name)
            if value is not None:
                table[name] = value if type(value) in _PLAIN_TYPES else kind.to_json(value)
        return table

    def replace(self, **changes: Any) -> Self:
        """A copy with other values; changed keys count as given."""
        return replace(self, **changes, explicit=self.explicit | set(changes))


_kinds: dict[type[Settings], dict[str, Kind]] = {}


def kinds_of(table: type[Settings]) -> Mapping[str, Kind]:
    """The kind of every key of a table."""
    if table not in _kinds:
        _kinds[table] = {f.name: f.metadata[KIND] for f in fields(table) if KIND in f.metadata}
    return _kinds[table]
