"""Several programs on one card on one screen: the answer, one bar, a line for each, why, and what to try."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.cli.language import cells
from vramwise.cli.screens.bar import FILLS, bar
from vramwise.cli.screens.estimate import card_name, interval_text, model_title, said, verdict_segment
from vramwise.cli.screens.paint import Line, Segment, columns, screen_width, wrapped, wrapped_text
from vramwise.errors import clipped
from vramwise.planner.together import Part, Together
from vramwise.units import counted, format_bytes, gib
from vramwise.verdict import Advice


def together_screen(found: Together) -> list[Line]:
    """The lines of `vramwise estimate … --together`."""
    width, worst, card = screen_width(), found.worst, found.capacity
    total, usable = format_bytes(card.total_bytes), format_bytes(card.usable_bytes)
    needed = worst.total
    parts = [(name, int(quantity.expected)) for name, quantity in worst.held]
    shown = (
        parts
        if len(parts) <= len(FILLS)
        else [*parts[: len(FILLS) - 1], ("others", sum(s for _, s in parts[len(FILLS) - 1 :]))]
    )
    text = f"take together  {format_bytes(int(needed.expected))}{interval_text(needed)}"
    programs = counted(len(found.parts), "program")
    lines: list[Line] = [
        f"{programs} on one {card_name(card.gpu) or 'card'} · {total} in total, {usable} usable",
        "",
        *_answer((text, "bold"), verdict_segment(found.verdict), f"      moment: {clipped(worst.name, 40)}", width),
        bar(shown, card.usable_bytes, width - 2),
        *wrapped([f"{FILLS[i]} {clipped(name, 30)} {gib(size):,.2f}" for i, (name, size) in enumerate(shown)], width),
        "",
        *_table(found.parts, width),
    ]
    if len(found.moments) > 1:
        moments = [f"{clipped(moment.name, 40)} {gib(int(moment.total.expected)):,.2f}" for moment in found.moments]
        lines += ["", *wrapped([f"{'moments':<12}{moments[0]}", *moments[1:]], width, indent=12)]
    reasons = [("try" if isinstance(reason, Advice) else "because", reason) for reason in found.verdict.reasons]
    told = [*reasons, *(("note", note) for note in found.notes)]
    for place, (label, reason) in enumerate(told):
        lines += [*([""] if not place else []), *wrapped_text(f"{label:<12}", reason, width)]
    said_below = "sizes in GiB (2^30 bytes); the programs start in this order, each with a CUDA context of its own"
    return [*lines, "", *wrapped_text("", said_below, width)]


def _answer(text: Segment, verdict: Segment, moment: str, width: int) -> list[Line]:
    if len(text[0]) + len(verdict[0]) + len(moment) <= width:
        return [[text, verdict, (moment, "")]]
    return [[text, verdict], moment]


def _table(parts: Sequence[Part], width: int) -> list[str]:
    """A line a program; names as long as the screen has room for."""
    head = ["program", "runs", "takes", "asleep", "finds free", ""]
    for gap, name, runs in ((3, 30, 40), (2, 20, 30), (2, 16, 22), (2, 12, 14)):
        lines = columns([head, *(_row(part, name, runs) for part in parts)], left={1, 5}, gap=gap)
        if max(map(cells, lines)) <= width:
            break
    return lines


def _row(part: Part, name_room: int, runs_room: int) -> list[str]:
    scenario = part.result.scenario
    runs = f"{scenario['task']} {model_title(part.result.model.id)}"
    asleep = format_bytes(int(part.asleep.expected)) if part.asleep is not None else "–"
    verdict = said(part.result.verdict) if part.result.verdict is not None else ""
    taken = format_bytes(int(part.process.expected))
    return [
        clipped(part.name, name_room),
        clipped(runs, runs_room),
        taken,
        asleep,
        format_bytes(part.free_bytes),
        verdict,
    ]
