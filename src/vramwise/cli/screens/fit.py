"""The lists of `vramwise fit`: a model a line, how it runs and how it is fine-tuned."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TextIO

from vramwise.cli.language import said_line
from vramwise.cli.screens.door import command_lines, machine_words
from vramwise.cli.screens.estimate import model_title
from vramwise.cli.screens.paint import Line, in_encoding, screen_width, wrapped_text
from vramwise.planner.ahead import MODELS_AHEAD, Later, begun_ahead, later
from vramwise.planner.catalog_fit import Candidates, description_of, first_rows, rows_of
from vramwise.planner.families import family_of, tuned_from
from vramwise.planner.rows import Row
from vramwise.planner.running import Wanted
from vramwise.planner.sizes import num_parameters_of
from vramwise.units import gib
from vramwise.verdict import percent

Rows = tuple[Row, ...]
_WIDE, _EIGHT, _FOUR, _LESS = "16 bit", "8 bit", "4 bit", "3 bit"
_BITS = {
    "16 bit": _WIDE, "BF16": _WIDE, "fp8": _EIGHT, "Q8_0": _EIGHT, "fp8-block": _EIGHT, "Q6_K": _FOUR, "Q5_K_M": _FOUR,
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


def short_list(
    asked: Candidates, top: int, out: TextIO, *, replays: bool, pool: Executor | None = None
) -> bool:  # fmt: skip
    """Prints the largest models of each group as they are found; whether there are any.

    One of each name and size stands for others, a model for other makers' tunes of it. A model is fine-tuned once it
    is to be shown, and passed over where all groups in which it may stand are full. `pool`: processes that work ahead.
    """
    lines = _Lines(asked, out)
    counts: Counter[str] = Counter()
    seen: set[tuple[str, int]] = set()
    known: dict[str, Later[Rows]] = {}
    among = frozenset(asked.ids)

    def is_open(model: str) -> bool:
        kind = _kind(model)
        return kind not in seen and any(counts[group] < top for group in _groups_of(kind[1], asked))

    def begin(model: str) -> Later[Rows]:
        described = description_of(model)
        if described not in known:  # a group that is full stays so: nothing that was passed over is wanted later
            wanted = _wanted(asked, counts, top)
            work = partial(first_rows, model, asked.machine, asked.tasks[0], wanted, replays=replays)
            known[described] = later(pool, work)
        return known[described]

    models = (model for model in asked.ids if is_open(model) and tuned_from(model) not in among)
    for model, first in begun_ahead(models, begin, MODELS_AHEAD if pool is not None else 0):
        if not is_open(model):
            continue
        rows = tuple(row.of(model) for row in first.result())
        if not rows or not runs_well(rows) or counts[group_of(rows)] >= top:
            lines.print_known()
            continue
        further = partial(rows_of, model, asked.machine, asked.tasks[1:], replays=replays, cached=True)
        seen.add(_kind(model))
        counts[group_of(rows)] += 1
        lines.add(rows, later(pool, further))
    return lines.end()


class _Lines:
    """The lines of a list, printed in order: the first half once it is known how a model runs, then how it trains."""

    def __init__(self, asked: Candidates, out: TextIO) -> None:
        self._asked, self._out, self._width = asked, out, screen_width()
        self._shown: list[Rows] = []
        self._waiting: deque[tuple[Rows, Later[Rows]]] = deque()
        self._begun = 0
        _print(out, _heading(asked, self._width))

    def add(self, rows: Rows, further: Later[Rows]) -> None:
        """A line whose end is still worked out."""
        if not self._shown and not self._waiting:
            _print(self._out, [_titles(self._asked, self._width)])
        self._waiting.append((rows, further))
        if len(self._waiting) == 1:
            self._begin()
        self.print_known()

    def print_known(self) -> None:
        """Prints what nobody has to wait for."""
        while self._waiting and self._waiting[0][1].done():
            self._finish()

    def end(self) -> bool:
        """Prints what is left, and what stands below the lines; whether there are any."""
        while self._waiting:
            self._finish()
        if not self._shown:
            _print(self._out, _nothing(self._asked, self._width))
            return False
        _print(self._out, ["", *_summary(self._shown, self._asked, self._width), *_foot(self._shown, self._width)])
        return True

    def _begin(self) -> None:
        """The first half of a line; how many of its characters stand there."""
        rows = self._waiting[0][0]
        begun = ""
        if len(self._asked.tasks) > 1:
            begun = _cells(model_title(rows[0].model), _run_cells(rows[0]), "", self._width)
        print(in_encoding(begun, self._out.encoding), end="", file=self._out, flush=True)
        self._begun = len(begun)

    def _finish(self) -> None:
        first, further = self._waiting[0]
        rows = first + further.result()
        self._waiting.popleft()
        self._shown.append(rows)
        _print(self._out, [_line(rows, self._asked, self._width)[self._begun :]])
        if self._waiting:
            self._begin()


def _kind(model: str) -> tuple[str, int]:
    """What one model of it stands for in a list."""
    return family_of(model), num_parameters_of(model) or 0


def _wanted(asked: Candidates, counts: Mapping[str, int], top: int) -> Wanted:
    """Precisions, or methods where training alone is asked, of which a further row is shown."""
    trains = asked.tasks[0] == "train"
    free = frozenset(one for one in (_METHODS if trains else (_WIDE, _EIGHT, _FOUR)) if counts[one] < top)
    return free.__contains__ if trains else partial(_is_of, free)


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
    if any(row.task == "train" for rows in kept for row in rows):
        how = "training rows by a calibrated ratio of reserved memory; --replay replays them"
        lines += wrapped_text("", how, width)
    return [*lines, *_summary(ordered, asked, width), *_foot(kept, width)]


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


def _tuning(name: str, need: str, tune: str, width: int) -> str:
    return f"{_named(name, width)} {need:>10}  {tune}".rstrip()


def _cells(name: str, run: tuple[str, str, str, str], tune: str, width: int) -> str:
    quantization, size, context, speed = run
    need = f"{quantization:<6} {size:>{16 - max(6, len(quantization))}}"
    return f"{_named(name, width)} {need} {context:>9} {speed:>8}  {tune}".rstrip()


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
