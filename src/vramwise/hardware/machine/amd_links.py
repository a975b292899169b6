"""AMD's link tables: `rocm-smi --showtopo` (Link Type between two GPUs) and `amd-smi topology` (LINK TYPE TABLE)."""

from __future__ import annotations

import re

from vramwise.errors import SourceError
from vramwise.hardware.machine.matrix_text import MANGLED, MOST_DEVICES, Block

_CELL = re.compile(r"\d+|XGMI|PCIE|SELF|N/A|UNKNOWN", re.IGNORECASE)
_HEADING = re.compile(r"link type (?:between two gpus|table)", re.IGNORECASE)
_NAME = re.compile(r"GPU\d+|[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d")
_ITSELF = ("0", "SELF")


def is_amd(block: Block) -> bool:
    """Whether a matrix is rocm-smi's: numbers (weights, hops) or its words for links."""
    return bool(block.rows) and all(
        words and all(_CELL.fullmatch(word) for word in words) for _, words in block.rows
    )  # fmt: skip


def read_amd_links(text: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """GPUs in the table's order, as GPU0, GPU1, …, and the link of each pair: XGMI or PCIE, X with itself.

    Raises SourceError, which begins with MANGLED where rows or cells are missing or the table is not symmetric.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if _HEADING.search(line)), None)
    if start is None:
        raise SourceError("no table of AMD's links here: expected “Link Type between two GPUs” or “LINK TYPE TABLE”")
    names: list[str] = []
    rows: dict[str, list[str]] = {}
    for line in lines[start + 1 :]:
        words = line.split()
        if not names:
            names = words if words and all(_NAME.fullmatch(word) for word in words) else []
        elif words and words[0] in names and words[0] not in rows:
            rows[words[0]] = [word.upper() for word in words[1:]]
        elif words:
            break
    if not names or len(names) > MOST_DEVICES:
        raise SourceError("no table of AMD's links here: its heading has no line of GPUs below it")
    for name in names:
        if len(rows.get(name, ())) != len(names):
            raise SourceError(f"{MANGLED}: {name} has {len(rows.get(name, ()))} links for {len(names)} columns")
    matrix = tuple(tuple("X" if cell in _ITSELF else cell for cell in rows[name]) for name in names)
    for i, row in enumerate(matrix):
        if row[i] != "X" or any(row[j] != matrix[j][i] for j in range(i)):
            raise SourceError(f"{MANGLED}: the links of {names[i]} are not the same both ways")
    return tuple(f"GPU{i}" for i in range(len(names))), matrix
