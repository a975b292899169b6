"""What checkpoints of a catalogued architecture have otherwise: how many positions they were made for."""

from __future__ import annotations

from functools import cache

from vramwise.tables import Row, table


@cache
def _rows() -> dict[str, dict[str, object]]:
    return {row["name"].lower(): _values(row) for row in table(__file__)}


def _values(row: Row) -> dict[str, object]:
    values: dict[str, object] = {"max_position_embeddings": row.whole("max_position_embeddings")}
    original = row.whole_or_none("original_max_position_embeddings") or 0
    if row["rope_type"]:
        scaling: dict[str, object] = {"rope_type": row["rope_type"], "original_max_position_embeddings": original}
        if row["factor"]:
            scaling["factor"] = row.number("factor")
        values["rope_scaling"] = scaling
        values["original_max_position_embeddings"] = original
    return values


def values_of(variant: str) -> dict[str, object]:
    """Keys of the config in which the variant differs from its catalog entry; empty where none is known."""
    return _rows().get(variant.lower(), {})
