"""Tables, lists of tables and of texts inside a manifest, whatever stands in their place."""

from __future__ import annotations

from collections.abc import Mapping

Table = Mapping[str, object]


def table_in(value: object) -> Table:
    """The table; an empty one where it is none."""
    return value if isinstance(value, Mapping) else {}


def tables_in(value: object) -> list[Table]:
    """The tables of a list; none where it is no list."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def texts_in(value: object) -> list[str]:
    """What a list holds, as texts; nothing where it is no list."""
    return [str(one) for one in value] if isinstance(value, list) else []
