"""`--explain [PATH]`: every term of a moment with its formula, inputs, kind and source."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.cli.screens.paint import Line, screen_width, wrapped_text
from vramwise.errors import UnknownNameError, nearest
from vramwise.result import Node, Result
from vramwise.units import MIB, format_bytes

SMALLEST_GIB_SHOWN = 100 * MIB


def explain_screen(result: Result, path: str) -> list[Line]:
    """The tree of the peak moment, or of the moment or term that `path` names (`loss/activations/...`)."""
    lines: list[Line] = []
    for title, node in _chosen(result, path):
        lines += ["", title] if lines else [title]
        lines += _tree(node, 0)
    return lines


def _chosen(result: Result, path: str) -> Iterator[tuple[str, Node]]:
    peak = result.peak_phase or (result.phases[0].name if result.phases else None)
    for phase in result.phases:
        if path in ("", "all"):
            if path == "all" or phase.name == peak:
                yield f"moment: {phase.name}", phase.components
        elif path == phase.name:
            yield f"moment: {phase.name}", phase.components
        elif path.startswith(f"{phase.name}/"):
            node = phase.components.find(path.removeprefix(f"{phase.name}/"))
            if node is not None:
                yield path, node
                return
    if path in ("", "all") or any(path == phase.name for phase in result.phases):
        return
    found = _search(result, path, peak)
    if found is None:
        names = {node.name for phase in result.phases for node in _walk(phase.components)}
        moments = ", ".join(phase.name for phase in result.phases)
        raise UnknownNameError("term", path, nearest(path, names), f"moments: {moments}; --explain shows the peak")
    yield found


def _search(result: Result, path: str, peak: str | None) -> tuple[str, Node] | None:
    """A term by its path or plain name, looked for in the peak moment first."""
    for phase in sorted(result.phases, key=lambda phase: phase.name != peak):
        node = phase.components.find(path) or next((n for n in _walk(phase.components) if n.name == path), None)
        if node is not None:
            return f"{path} (moment: {phase.name})", node
    return None


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _walk(child)


def size_text(n: int) -> str:
    """GiB, or MiB and bytes where GiB would show nothing."""
    if abs(n) >= SMALLEST_GIB_SHOWN:
        return format_bytes(n)
    return format_bytes(n, "auto") if n else "0 B"


def _tree(node: Node, depth: int) -> Iterator[Line]:
    pad = "  " * (depth + 1)
    interval = f" ({size_text(node.low)} – {size_text(node.high)})" if node.low != node.high else ""
    said = f"{size_text(node.bytes)}{interval}"
    style = "bold" if node.children else ""
    if len(f"{pad}{node.name}  {said}  [{node.kind}]") <= screen_width():
        yield [(f"{pad}{node.name}", style), (f"  {said}  ", ""), (f"[{node.kind}]", "dim")]
    else:
        for line in wrapped_text(pad, node.name, screen_width()):
            yield [(line, style)]
        yield [(f"{pad}    {said}  ", ""), (f"[{node.kind}]", "dim")]
    if node.formula:
        inputs = ", ".join(f"{name} = {_figure(value)}" for name, value in node.inputs.items())
        yield from wrapped_text(
            f"{pad}    = ", f"{node.formula}{f', with {inputs}' if inputs else ''}", screen_width(), quoted=True
        )
    if node.source:
        for line in wrapped_text(f"{pad}    source: ", node.source, screen_width(), quoted=True):
            yield [(line, "dim")]
    for child in node.children:
        yield from _tree(child, depth + 1)


def _figure(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
