"""The lists of `vramwise fit`: a model a line, how it runs and how it is fine-tuned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TextIO

from vramwise.cli.language import said_line
from vramwise.cli.screens.door import command_lines, machine_words
from vramwise.cli.screens.estimate import model_title
from vramwise.cli.screens.paint import Line, in_encoding, screen_width, wrapped_text
from vramwise.planner.catalog_fit import Candidates, description_of, may_run_well, rows_of
from vramwise.planner.families import family_of, tuned_from
from vramwise.planner.rows import Row
from vramwise.planner.running import Wanted
from vramwise.planner.sizes import num_parameters_of
from vramwise.units import gib
from vramwise.verdict import percent

Rows = tuple[Row, ...]
_WIDE, _EIGHT, _FOUR, _LESS = "16 bit", "8 bit", "4 bit", "3 bit"
_BITS = {
    "16 bit": _WIDE, "fp8": _EIGHT, "Q8_0": _EIGHT, "fp8-block": _EIGHT, "Q6_K": _FOUR, "Q5_K_M": _FOUR,
    "Q4_K_M": _FOUR, "Q3_K_M": _LESS,
}  # fmt: skip
_METHODS = {"full": "full", "lora": "LoRA", "qlora": "QLoRA"}
_ORDER = (_WIDE, _EIGHT, _FOUR, _LESS)
_SLOW = "slow"
_WIDEST_NAME = 44
_ROOM_FOR_PERCENT = 90
"""Columns of a screen from which a step that is tight is shown with its probability; below it with a ? alone."""
_BESIDE_NAME, _BESIDE_NAME_SHORT = 66, 58
"""Columns that everything but the name takes at most, with "QLoRA 16 × 1,024 tight 89 %", or ending in a "?"."""


def group_of(rows: Rows) -> str:
    """What a model stands under: the bits it runs in, `slow` with a part on the host, else how it trains."""
    first = rows[0]
    if first.task == "train":
        return first.method
    return bits_of(first.quantization) if first.is_whole else _SLOW


def _is_of(groups: frozenset[str], precision: str) -> bool:
    return bits_of(precision) in groups


def bits_of(precision: str) -> str:
    """What a precision stands under, as its engine or its file calls it."""
    return _BITS.get(precision, _EIGHT if "8" in precision else _FOUR)


def short_list(asked: Candidates, top: int, out: TextIO, *, replays: bool) -> bool:
    """Prints the largest models of each group as they are found; whether there are any.

    One of each name and size stands for others, a model for other makers' tunes of it. A model is fine-tuned once it
    is to be shown, and passed over where all groups in which it may stand are full.
    """
    width = screen_width()
    shown: list[Rows] = []
    counts: Counter[str] = Counter()
    seen: set[tuple[str, int]] = set()
    known: dict[str, Rows] = {}
    among = frozenset(asked.ids)
    _print(out, _heading(asked, width))
    for model in asked.ids:
        kind = family_of(model), num_parameters_of(model) or 0
        if kind in seen or all(counts[group] >= top for group in _groups_of(kind[1], asked)):
            continue
        if tuned_from(model) in among:
            continue
        described = description_of(model)
        if described not in known:  # a group that is full stays so: nothing that was passed over is wanted later
            free = frozenset(group for group in (_WIDE, _EIGHT, _FOUR) if counts[group] < top)
            known[described] = _first_rows(model, asked, partial(_is_of, free), replays=replays)
        rows = tuple(row.of(model) for row in known[described])
        if not rows or not runs_well(rows) or counts[group_of(rows)] >= top:
            continue
        if not shown:
            _print(out, [_titles(asked, width)])
        begun = _begin(out, rows, asked, width)
        rows += rows_of(model, asked.machine, asked.tasks[1:], replays=replays, cached=True)
        seen.add(kind)
        counts[group_of(rows)] += 1
        shown.append(rows)
        _print(out, [_line(rows, asked, width)[begun:]])
    if not shown:
        _print(out, _nothing(asked, width))
        return False
    _print(out, ["", *_summary(shown, asked, width), *_foot(shown, width)])
    return True


def _first_rows(model: str, asked: Candidates, wanted: Wanted, *, replays: bool) -> Rows:
    """How a model runs, or how it is trained where that alone is asked; none of what would be passed over anyhow."""
    if asked.tasks[0] == "serve" and not may_run_well(model, asked.machine, wanted):
        return ()
    return rows_of(model, asked.machine, asked.tasks[:1], replays=replays, cached=True, wanted=wanted)


def _groups_of(num_parameters: int, asked: Candidates) -> tuple[str, ...]:
    """Where a model of this size may stand: what its weights alone leave room for."""
    if asked.tasks[0] == "train":
        return tuple(_METHODS)
    room = asked.machine.room_bytes
    return tuple(group for group, width in ((_WIDE, 2), (_EIGHT, 1), (_FOUR, 0.5)) if num_parameters * width <= room)


def long_list(
    asked: Candidates, ordered: Sequence[Rows], top: int | None, searched: int, *, interrupted: bool
) -> list[Line]:
    """All models that fit, or `top` of each group."""
    width = screen_width()
    counts: dict[str, int] = {}
    kept = []
    for rows in ordered:
        counts[group_of(rows)] = counts.get(group_of(rows), 0) + 1
        if top is None or counts[group_of(rows)] <= top:
            kept.append(rows)
    lines: list[Line] = [*_heading(asked, width)]
    if not kept:
        return [*lines, *([] if interrupted else _nothing(asked, width))]
    lines += [_titles(asked, width), *(_line(rows, asked, width) for rows in kept), ""]
    said = f"{len(ordered):,} of {searched:,} models fit"
    if interrupted:
        said = f"interrupted after {searched:,} of {len(asked.ids):,} models: {len(ordered):,} of them fit"
    lines += wrapped_text("", said, width)
    lines += wrapped_text("", "training rows by a calibrated ratio of reserved memory; --replay replays them", width)
    return [*lines, *_summary(kept, asked, width), *_foot(kept, width)]


def sorted_rows(asked: Candidates, found: Mapping[str, Rows], sort: str) -> list[Rows]:
    """The models that fit, in the order that was asked for; equals stay as they were asked for, largest first."""
    ordered = [found[model] for model in asked.ids if found.get(model)]
    keys = {
        "size": lambda rows: not runs_well(rows),
        "quantization": lambda rows: _ORDER.index(group_of(rows)) if group_of(rows) in _ORDER else len(_ORDER),
        "context": lambda rows: -rows[0].sequence_length,
        "speed": lambda rows: -(rows[0].ceiling.tokens_per_second if rows[0].ceiling is not None else 0),
        "name": lambda rows: rows[0].model.rpartition("/")[2].lower(),
    }
    return sorted(ordered, key=keys[sort])


def runs_well(rows: Rows) -> bool:
    """Whether a model's first way is more than a last resort."""
    return rows[0].task == "train" or (rows[0].is_whole and group_of(rows) != _LESS)


def _heading(asked: Candidates, width: int) -> list[str]:
    lines = wrapped_text("", machine_words(asked.machine), width)
    for note in asked.machine.notes:
        lines += wrapped_text("note  ", note, width)
    return [*lines, ""]


def _titles(asked: Candidates, width: int) -> str:
    tune = "fine-tune it" if "train" in asked.tasks else ""
    if asked.tasks == ("train",):
        return _tuning("model", "needs", tune, width)
    return _cells("model", ("run it", "", "context", "tokens/s"), tune, width)


def _line(rows: Rows, asked: Candidates, width: int) -> str:
    name, first = model_title(rows[0].model), rows[0]
    if first.task == "train":
        if asked.tasks == ("train",):
            return _tuning(name, _need(first), _tune_cell(first, width), width)
        return _cells(name, ("–", "", "", ""), _tune_cell(first, width), width)
    tune = next((_tune_cell(row, width) for row in rows[1:]), "–") if "train" in asked.tasks else ""
    return _cells(name, _run_cells(first), tune, width)


def _begin(out: TextIO, rows: Rows, asked: Candidates, width: int) -> int:
    """Show how a model runs while it is worked out how it is trained; how many characters of its line stand there."""
    if len(asked.tasks) == 1:
        return 0
    begun = _cells(model_title(rows[0].model), _run_cells(rows[0]), "", width)
    print(in_encoding(begun, out.encoding), end="", file=out, flush=True)
    return len(begun)


def _tuning(name: str, need: str, tune: str, width: int) -> str:
    return f"{_named(name, width)} {need:>10}  {tune}".rstrip()


def _cells(name: str, run: tuple[str, str, str, str], tune: str, width: int) -> str:
    quantization, size, context, speed = run
    return f"{_named(name, width)} {quantization:<6} {size:>10} {context:>9} {speed:>8}  {tune}".rstrip()


def _named(name: str, width: int) -> str:
    room = min(_WIDEST_NAME, width - (_BESIDE_NAME if width >= _ROOM_FOR_PERCENT else _BESIDE_NAME_SHORT))
    return f"{name if len(name) <= room else name[: room - 1] + '…':<{room}}"


def _need(row: Row) -> str:
    return f"{gib(round(row.total_needed.expected)):.1f} GiB" if row.total_needed is not None else ""


def _run_cells(row: Row) -> tuple[str, str, str, str]:
    speed = f"{row.ceiling.tokens_per_second:,.0f}" if row.ceiling is not None else ""
    if not row.is_whole:
        speed = f"{row.n_gpu_layers}/{row.num_layers}" if not row.host_experts else f"e{row.host_experts}"
    context = f"{row.sequence_length:,}" if row.sequence_length else ""
    return (
        row.quantization.replace("bitsandbytes-", ""),
        _need(row),
        context,
        f"{speed}{_tight(row)}",
    )


def _tight(row: Row) -> str:
    return " ?" if row.verdict == "tight" else ""


def _tune_cell(row: Row, width: int) -> str:
    sizes = f"{row.micro_batch_size} × {row.sequence_length:,}" if row.sequence_length else f"{row.micro_batch_size}"
    sure = _tight(row) if width < _ROOM_FOR_PERCENT or row.verdict != "tight" else f" tight {percent(row.probability)}"
    return f"{_METHODS[row.method]:<5} {sizes}{sure}"


def _summary(every: Sequence[Rows], asked: Candidates, width: int) -> list[str]:
    """The first model of each group as they were asked for, the largest, and the longest context."""
    place = {model: number for number, model in enumerate(asked.ids)}
    runs = [rows[0] for rows in every if rows[0].task == "serve" and rows[0].is_whole]
    if not runs:
        return []
    said = []
    for bits in (_EIGHT, _FOUR):
        fitting = [row for row in runs if _BITS.get(row.quantization) == bits]
        if fitting:
            best = min(fitting, key=lambda row: place[row.model])
            said.append(f"largest at {bits}: {model_title(best.model)}")
    longest = max(runs, key=lambda row: (row.sequence_length, row.num_parameters))
    said.append(f"longest context: {model_title(longest.model)}, {longest.sequence_length:,}")
    return wrapped_text("run it  ", "; ".join(said), width)


def _foot(every: Sequence[Rows], width: int) -> list[str]:
    basis = next((row.ceiling.basis for rows in every for row in rows if row.ceiling is not None), None)
    said = [] if basis is None else [f"tokens/s: of one request at that context, {basis}"]
    if any(row.verdict == "tight" for rows in every for row in rows):
        said.append(f"tight: fits with less than 95 % ({'run it: ' if width >= _ROOM_FOR_PERCENT else ''}?)")
    lines = [*wrapped_text("", "; ".join(said), width), ""] if said else []
    return [*lines, *command_lines(every[0][0].command, width, "next: ")]


def _nothing(asked: Candidates, width: int) -> list[str]:
    """Where nothing fits: what the smallest model that was asked for has."""
    if not asked.smallest:
        return wrapped_text("", "no model of the catalog is of that family and size", width)
    name, size = asked.smallest
    said = f"nothing fits; the smallest of them is {model_title(name)} with {size:,} parameters"
    return wrapped_text("", f"{said}: vramwise estimate {name} says what holds it", width)


def _print(out: TextIO, lines: Iterable[str]) -> None:
    for line in lines:
        print(in_encoding(said_line(line), out.encoding), file=out, flush=True)
