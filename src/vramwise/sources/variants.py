"""What checkpoints of a catalogued architecture have otherwise: how many positions they were made for."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _rows() -> dict[str, dict[str, Any]]:
    with open(Path(__file__).parent / "variants.csv", newline="", encoding="utf-8") as file:
        return {row["name"].lower(): _values(row) for row in csv.DictReader(file)}


def _values(row: dict[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {"max_position_embeddings": int(row["max_position_embeddings"])}
    original = int(row["original_max_position_embeddings"] or 0)
    if row["rope_type"]:
        scaling: dict[str, Any] = {"rope_type": row["rope_type"], "original_max_position_embeddings": original}
        if row["factor"]:
            scaling["factor"] = float(row["factor"])
        values["rope_scaling"] = scaling
        values["original_max_position_embeddings"] = original
    return values


def values_of(variant: str) -> dict[str, Any]:
    """Keys of the config in which the variant differs from its catalog entry; empty where none is known."""
    return _rows().get(variant.lower(), {})
