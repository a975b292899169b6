"""Why a run went out of memory, on one screen: what was asked for, what there was, why, and what to change."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.cli.screens.estimate import said, with_costs
from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped, wrapped_text
from vramwise.measure import Diagnosis
from vramwise.measure.causes import kind_of
from vramwise.measure.changes import Change
from vramwise.measure.snapshot import Frame, Stack
from vramwise.planner import Suggestion
from vramwise.units import format_bytes, sized


def oom_screen(found: Sequence[Diagnosis], estimated: Sequence[Suggestion] | None, top: int) -> list[Line]:
    """The lines of `vramwise oom`."""
    width = screen_width()
    lines: list[Line] = []
    for item in found:
        if lines:
            lines.append("")
        lines += _one(item, width, top)
    if estimated is not None:
        lines += ["", *_estimated(estimated, width)]
    return lines


def _estimated(estimated: Sequence[Suggestion], width: int) -> list[Line]:
    if not estimated:
        return ["no change to the scenario makes its estimate smaller"]
    rows = [
        (
            f"  {one.change.words}",
            format_bytes(int(one.needed.expected)),
            "–" if one.verdict is None else said(one.verdict),
        )
        for one in estimated
    ]
    table = columns([("full estimates of the scenario, changed", "needs", "verdict"), *rows], left=(2,))
    return list(with_costs(table, ["cost", *(one.change.cost for one in estimated)], width))


def _one(item: Diagnosis, width: int, top: int) -> list[Line]:
    memory = f"{item.memory} memory" if item.memory not in ("device", None) else ""
    where = " · ".join(piece for piece in (item.program, item.device, memory) if piece)
    asked = f"asked for {sized(item.asked)}" if item.asked is not None else ""
    said_so = "probably OUT OF MEMORY" if item.is_probable else "OUT OF MEMORY"
    verdict = said_so if item.is_failure else "no failure in this window"
    lines: list[Line] = [
        [(f"{where}   ", ""), (verdict, "bold red" if item.is_failure else "bold"), (f"   {asked}", "")]
    ]
    numbers = _numbers(item)
    if numbers:
        lines += wrapped([f"{'memory':<12}{numbers[0]}", *numbers[1:]], width, indent=12)
    lines += wrapped_text(f"{'cause':<12}", item.cause, width)
    if item.stack:
        lines += wrapped_text(f"{'at':<12}", where_of(item.stack), width)
    if item.holdings:
        pieces = [f"{name} {sized(size)}" for name, size in item.holdings]
        lines += wrapped([f"{'held by':<12}" + pieces[0], *pieces[1:]], width, indent=12)
    if item.changes:
        lines += ["", "two smallest changes"]
        lines += [line for change in item.changes for line in _change(change, width)]
    if item.largest and top:
        rows = [[sized(group.size), f"{group.count:,}", kind_of(group.stack).name] for group in item.largest[:top]]
        head, *rest = columns([["largest live blocks", "blocks", "kind"], *rows])
        lines += ["", f"{head}   asked for by"]
        lines += [
            f"{row}   {where_of(group.stack)}"[: max(width, len(row) + 20)]
            for row, group in zip(rest, item.largest, strict=False)
        ]
    return lines


def _change(change: Change, width: int) -> list[str]:
    """What to change, what it frees and costs; these below it where the line is too long for all."""
    frees = [f"frees up to {sized(change.frees)}"] if change.frees else []
    pieces = [*frees, f"cost: {change.cost}"]
    what = wrapped_text("  ", change.what, width)
    if len(what) > 1:
        return [*what, *wrapped([f"      {pieces[0]}", *pieces[1:]], width, indent=6)]
    return wrapped([what[0], *pieces], width, indent=6)


def _numbers(item: Diagnosis) -> list[str]:
    named = (
        ("total", item.total), ("free", item.free), ("allocated", item.allocated), ("reserved", item.reserved),
        ("fragmentation", item.fragmentation), ("largest free block", item.largest_free_block),
        ("process", item.process), ("outside torch", item.outside_torch), ("limit", item.limit),
        ("outside this process's torch", item.elsewhere),
    )  # fmt: skip
    found = [f"{name} {sized(size)}" for name, size in named if size is not None]
    return found + [f"process {name} {sized(size)}" for name, size in item.others]


def where_of(stack: Stack) -> str:
    """The innermost frame outside torch's own files, with the line inside them that asked."""
    if not stack:
        return "stack not recorded"
    own = next((frame for frame in stack if "/torch/" not in frame.filename), stack[0])
    return _frame(own) if own is stack[0] else f"{_frame(own)} ({_frame(stack[0])})"


def _frame(frame: Frame) -> str:
    return f"{frame.filename.rsplit('/', 1)[-1]}:{frame.line} {frame.name}" if frame.filename else frame.name
