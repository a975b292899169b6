"""The peak by call stack: folded lines (`a;b;c BYTES`, what flame graph tools read), or a picture of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from vramwise import svg
from vramwise.dryrun.categories import category
from vramwise.dryrun.detail import short_path
from vramwise.dryrun.moments import peak_span
from vramwise.dryrun.recorder import Replay
from vramwise.units import format_bytes

_WIDTH: Final = 1200
_ROW: Final = 18
_LEAST: Final = 0.5
_COLOURS: Final = ("#e4794c", "#e8a33d", "#d95f5f", "#c98b4e", "#e0b35c")

Tree = dict[str, Any]


def write_flame(path: Path, replay: Replay) -> None:
    """Write FILE.svg as a picture, any other name as folded lines."""
    stacks = folded(replay)
    if path.suffix == ".svg":
        text = _picture(stacks)
    else:
        text = "".join(f"{stack} {size}\n" for stack, size in sorted(stacks.items()))
    part = path.with_name(path.name + ".part")
    part.write_text(text, "utf-8")
    part.replace(path)


def folded(replay: Replay) -> dict[str, int]:
    """Bytes at the peak by category, lines from the outermost on, and operation."""
    span = peak_span(replay)
    found: dict[str, int] = {}
    for life in span.at_peak if span is not None else ():
        lines = [f"{short_path(file)}:{line} {name}" for file, line, name in reversed(life.stack)]
        names = [category(life), *lines, *([life.module] if life.module else []), life.operation]
        stack = ";".join(name.replace(";", ",") for name in names)
        found[stack] = found.get(stack, 0) + life.size
    return found


def _picture(stacks: Mapping[str, int]) -> str:
    root: Tree = {"bytes": 0, "below": {}}
    for stack, size in stacks.items():
        node = root
        node["bytes"] += size
        for name in stack.split(";"):
            node = node["below"].setdefault(name, {"bytes": 0, "below": {}})
            node["bytes"] += size
    rows: list[str] = []
    deepest = _draw(rows, f"peak: {format_bytes(root['bytes'])}", root, 0.0, _WIDTH / max(1, root["bytes"]), 0)
    height = (deepest + 1) * _ROW
    return svg.document(_WIDTH, height, rows, font_size=11)


def _draw(rows: list[str], name: str, node: Tree, left: float, scale: float, depth: int) -> int:
    """Add a node and what lies below it; the deepest row."""
    width = node["bytes"] * scale
    if width < _LEAST:
        return depth
    title = f"{name} — {format_bytes(node['bytes'], 'auto')}"
    top = depth * _ROW
    rows.append(svg.box(left, top, width, _ROW - 1, _COLOURS[sum(name.encode()) % len(_COLOURS)], title=title))
    rows.append(svg.text(left + 2, top + 13, name[: max(0, int(width / 6.5))]))
    deepest, at = depth, left
    for below_name, below in node["below"].items():
        deepest = max(deepest, _draw(rows, below_name, below, at, scale, depth + 1))
        at += below["bytes"] * scale
    return deepest
