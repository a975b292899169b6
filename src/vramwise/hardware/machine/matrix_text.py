"""The matrices that `nvidia-smi topo` prints, as text: which lines belong to which, and their cells."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from vramwise.errors import SourceError, clipped

MANGLED = "mangled matrix"
MOST_DEVICES = 64
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DEVICE = re.compile(r"GPU\d+|NIC\d+|mlx\d_\d+(?:[_.]\w+)?")
_ROW = re.compile(r"\s*(GPU\d+|NIC\d+|mlx\d_\d+(?:[_.]\w+)?)[\t ]+(\S.*)")


class Block(NamedTuple):
    """One matrix: the devices of its header, and for each row its device and the words behind it."""

    devices: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def blocks(text: str) -> Iterator[Block]:
    """Every matrix in the text, from its header to the next one. Raises SourceError."""
    lines = [_ESCAPE.sub("", line) for line in text.splitlines()]
    starts = [i for i, line in enumerate(lines) if _is_header(line)]
    for start, end in pairwise([*starts, len(lines)]):
        devices = tuple(_DEVICE.findall(lines[start].partition("CPU Affinity")[0]))
        if len(devices) > MOST_DEVICES:
            raise SourceError(f"a matrix of {len(devices)} devices: at most {MOST_DEVICES} are read")
        matches = (_ROW.match(line) for line in lines[start + 1 : end])
        rows = tuple((m.group(1), tuple(m.group(2).split())) for m in matches if m and m.group(1) in devices)
        yield Block(devices, rows)


def cells_of(block: Block, known: re.Pattern[str], command: str) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """The cells of a block in the order of its devices, and the words behind each row's cells.

    `known` finds one cell's word; cells that were glued together are taken apart. Raises SourceError, which begins with
    MANGLED, where cells or rows are missing: a terminal or a paste mangled them, and a guess could be wrong.
    """
    found = {name: _cells(name, words, len(block.devices), known, command) for name, words in block.rows}
    missing = [device for device in block.devices if device not in found]
    if missing:
        raise SourceError(
            f"{MANGLED}: {', '.join(missing[:4])} {'has' if len(missing) == 1 else 'have'} a column and no row: "
            f"paste the whole output of {command}, tabs kept"
        )
    for place, device in enumerate(block.devices):
        if found[device][0][place] != "X":
            raise SourceError(f"{MANGLED}: {device} is not X with itself: columns are shifted")
    rows = [found[device] for device in block.devices]
    return tuple(cells for cells, _ in rows), tuple(rest for _, rest in rows)


def _cells(
    name: str, words: Sequence[str], count: int, known: re.Pattern[str], command: str
) -> tuple[tuple[str, ...], str]:
    cells: list[str] = []
    left = list(words)
    while left and len(cells) < count:
        glued = known.findall(left[0])
        if "".join(glued) != left[0]:
            break
        cells += glued
        left.pop(0)
    if len(cells) != count:
        line = clipped(f"{name} {' '.join(words)}", 60)
        raise SourceError(
            f"{MANGLED}: row {name} has {len(cells)} links for {count} columns "
            f'("{line}"): paste the whole output of {command}, tabs kept'
        )
    return tuple(cells), " ".join(left)


def _is_header(line: str) -> bool:
    words = line.partition("CPU")[0].split()
    return bool(words) and all(_DEVICE.fullmatch(word) for word in words)
