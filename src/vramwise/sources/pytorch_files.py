"""PyTorch's own weight files, pickles that are never opened: their size, from the list of files or from their index."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from vramwise.formats.safetensors import LARGEST_HEADER_BYTES
from vramwise.sources.repository import Repository
from vramwise.units import format_bytes

INDEX = "pytorch_model.bin.index.json"
_WEIGHTS = re.compile(r"pytorch_model(-\d{5}-of-\d{5})?\.bin")


def pytorch_note(repository: Repository) -> str | None:
    """A sentence on the size of a repository's PyTorch files where it has no others, None otherwise."""
    files = repository.files()
    if any(path.endswith((".safetensors", ".gguf")) for path in files):
        return None
    sizes = [size for path, size in files.items() if _WEIGHTS.fullmatch(path)]
    known = [size for size in sizes if size is not None]
    total = sum(known) if known and len(known) == len(sizes) else _total_in_index(repository)
    return (
        None if not total else f"{repository.name} holds {format_bytes(total)} in PyTorch files, which have no header"
    )


def _total_in_index(repository: Repository) -> int | None:
    if INDEX not in repository.files():
        return None
    try:
        table = json.loads(repository.read(INDEX, LARGEST_HEADER_BYTES))
    except (ValueError, RecursionError):
        return None
    metadata = table.get("metadata") if isinstance(table, Mapping) else None
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    return int(total) if isinstance(total, int | float) and 0 < total < 2**60 else None
