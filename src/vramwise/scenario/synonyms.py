"""What is the same thing under another name: in the table of another task, or with an engine that has its own word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vramwise.engines import DEFAULT, engine_named

# by table; the engines' own words for these stand in their records
_SAME: Final[tuple[Mapping[str, str], ...]] = (
    {"train": "micro_batch_size", "serve": "max_num_seqs", "generate": "batch_size"},
    {"train": "sequence_length", "serve": "max_model_len", "generate": "prompt_tokens"},
    {"train": "precision", "serve": "dtype", "generate": "dtype"},
)


def called(key: str, table: str, engine: str | None = None) -> str | None:
    """What a key of another task or engine is called in a table (and by the engine); None where nothing is the same."""
    if engine is not None and key in engine_named(engine).words:
        return engine_named(engine).words[key]
    key = engine_named(DEFAULT).words.get(key, key)
    found = next((row.get(table) for row in _SAME if key in row.values()), None)
    return None if found == key else found
