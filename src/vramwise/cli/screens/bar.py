"""The bar of a peak, scaled to the card, so that the empty part is the headroom."""

from __future__ import annotations

from itertools import pairwise

from vramwise.cli.screens.paint import Segment
from vramwise.result import Node

FILLS = "█▓▒░▚▞"
STYLES = ("blue", "green", "yellow", "magenta", "cyan", "red")


def segments_of(peak: Node, most: int = len(FILLS)) -> list[tuple[str, int]]:
    """The largest components of a moment with their bytes; what is left over is one part, `other`."""
    parts = sorted(((child.name, child.bytes) for child in peak.children), key=lambda part: -part[1])
    parts = [part for part in parts if part[1] > 0] or [(peak.name, peak.bytes)]
    if len(parts) <= most:
        return parts
    return [*parts[: most - 1], ("other", sum(size for _, size in parts[most - 1 :]))]


def bar(parts: list[tuple[str, int]], capacity_bytes: int | None, width: int) -> list[Segment]:
    """Blocks for each part; `|` stands where the card ends, spaces before it are free."""
    used = sum(size for _, size in parts)
    full = max(used, capacity_bytes or 0) or 1
    cells = _shares([size for _, size in parts], full, width)
    text = [(FILLS[i] * count, STYLES[i]) for i, count in enumerate(cells)]
    if capacity_bytes is None:
        return text
    edge = min(round(capacity_bytes / full * width), width - 1)
    return _with_edge(text, edge, width)


def _shares(sizes: list[int], full: int, width: int) -> list[int]:
    """Cells of each part, so that the running sums are rounded, not the parts."""
    edges, total = [0], 0
    for size in sizes:
        total += size
        edges.append(round(total / full * width))
    return [right - left for left, right in pairwise(edges)]


def _with_edge(text: list[Segment], edge: int, width: int) -> list[Segment]:
    cells = [(mark, style) for piece, style in text for mark in piece]
    cells += [(" ", "")] * (width - len(cells))
    cells[edge] = ("|", "bold")
    return cells
