"""`vramwise estimate MODEL` without a task: run it, fine-tune it, train it on how many of which cards."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from vramwise.cli import language
from vramwise.cli.language import cells, padded
from vramwise.cli.screens.estimate import card_name, model_title
from vramwise.cli.screens.model_facts import ImageCost, fact_lines
from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped_text
from vramwise.engines import engine_named
from vramwise.errors import clipped
from vramwise.formats.safetensors import StoredWeights
from vramwise.hardware import find_gpu
from vramwise.hardware.room import not_of_cuda
from vramwise.models import Model
from vramwise.models.lengths import model_length, reads_tokens
from vramwise.models.operations.experts import ExpertMlps
from vramwise.planner.door import Door
from vramwise.planner.machine import Machine
from vramwise.planner.rows import Row
from vramwise.planner.running import USEFUL_CONTEXT
from vramwise.planner.tuning import METHODS, usual_length
from vramwise.units import GB, MB, counted, gib
from vramwise.verdict import percent

_TITLES = {method.name: method.title for method in METHODS}
_SHORT = {"qlora": "QLoRA", "lora": "LoRA", "full": "full"}
_RUN, _TUNE, _TRAIN = "run it", "fine-tune it", "train it"
_WIDEST_TITLE = len(_TUNE)
_MOST_USUAL = "4090"


def door_screen(
    model: Model, answer: Door, image: ImageCost | None = None, stored: StoredWeights | None = None,
    notes: Sequence[str] = (),
) -> list[Line]:  # fmt: skip
    """The answers for one machine; `notes`: on the model's name."""
    width = screen_width()
    run = [(name, _run(row)) for name, row in answer.runs.items()]
    tune = [(_TITLES[name], _step(row)) for name, row in answer.steps.items()]
    train = [("full", text) for text in _train(answer.trained_on)]
    left, right = _block(_RUN, run, width), [*_block(_TUNE, tune, width), *_block(_TRAIN, train, width)]
    widest = max(map(cells, left))
    beside = [f"{padded(one, widest)}     {other}".rstrip() for one, other in zip_longest(left, right, fillvalue="")]
    is_wide = max(map(cells, beside)) <= width
    lines: list[Line] = [
        *_heading(model, machine_words(answer.question.machine), width),
        *fact_lines(model, image, stored),
        "",
    ]
    lines += beside if is_wide else [*left, *right]
    for head, text in (*_remarks(model, answer), *(("note", note) for note in notes)):
        lines += wrapped_text(f"{head:<14}", clipped(text, 400), width)
    return [*lines, *family_lines(answer.instead, width), *_next(answer, width)]


def glance_screen(
    model: Model, answers: Mapping[str, Door], image: ImageCost | None = None, stored: StoredWeights | None = None,
    notes: Sequence[str] = (),
) -> list[Line]:  # fmt: skip
    """The answers for the usual cards, a card a line."""
    width = screen_width()
    first = next(iter(answers.values()))
    precisions, methods = list(first.runs), list(first.steps)
    usual = max(row.sequence_length for row in first.steps.values())
    rows = [["", *precisions, *(_SHORT[name] for name in methods)]]
    rows += [
        [_card(card), *(_run_cell(row) for row in answer.runs.values()), *_step_cells(answer)]
        for card, answer in answers.items()
    ]
    table = columns(rows, gap=2)
    place = cells(table[0].partition(language.said(_SHORT[methods[0]]))[0])
    runs = "run it: longest context" if reads_tokens(model) else "run it: weights"
    heads = " " * cells(table[0].partition(language.said(precisions[0]))[0]) + language.said(runs)
    if cells(heads) + 2 > place:
        heads = " " * (place - 2 - cells(language.said(_RUN))) + language.said(_RUN)
    heads = padded(heads, place) + language.said(_TUNE)
    step = f"1 × {usual:,} tokens" if usual else "one sample"
    note = f"a step of {step}; QLoRA and LoRA with checkpointing; N ×: on so many, with checkpointing, several by FSDP"
    lines: list[Line] = [*_heading(model, "", width), *fact_lines(model, image, stored), "", heads.rstrip(), *table]
    for one in (note, *notes):
        lines += wrapped_text("", one, width)
    shown = _shown(answers)
    run = shown.best_run
    is_held = shown.best_step is not None or (run is not None and run.is_whole)
    return [*lines, *(_next(shown, width) if is_held else _on_many_cards(answers, width))]


def _on_many_cards(answers: Mapping[str, Door], width: int) -> list[str]:
    """Where none of the usual cards holds it in any way: who says how many of the largest do."""
    card, answer = list(answers.items())[-1]
    words = next((row.command for row in answer.runs.values() if row.task == "serve"), ())
    if not words:
        return []
    return ["", *command_lines(("vramwise", "plan", *words[2 : words.index("--task")], "--goal", "run", "--gpu", card),
                               width, "next: ")]  # fmt: skip


def _shown(answers: Mapping[str, Door]) -> Door:
    """The card for the commands: the most usual one on which the model runs and is fine-tuned."""
    cards = [answers[card] for card in sorted(answers, key=lambda card: card != _MOST_USUAL)]
    both = [answer for answer in cards if answer.best_run is not None and answer.best_step is not None]
    some = [answer for answer in cards if answer.fits]
    return next(iter((*both, *reversed(some), *reversed(cards))))


def _heading(model: Model, machine: str, width: int) -> list[str]:
    unit, scale = ("B", GB) if model.num_parameters >= GB else ("M", MB)
    pieces = [model_title(model.id), f"{model.num_parameters / scale:.2f} {unit} parameters"]
    if model.num_active_parameters != model.num_parameters:
        pieces.append(f"{model.num_active_parameters / scale:.2f} {unit} active")
    if reads_tokens(model):
        pieces.append(f"context {model_length(model):,}")
    said = " · ".join(pieces)
    if machine and len(said) + len(machine) + 3 <= width:
        return [f"{said}{machine:>{width - len(said)}}"]
    return [*wrapped_text("", said, width), *(wrapped_text("", machine, width) if machine else ())]


def machine_words(machine: Machine) -> str:
    """The card or cards with their memory."""
    many = f"{machine.num_gpus:,} × " if machine.num_gpus > 1 and machine.gpu is not None else ""
    name = f"{machine.name} · " if machine.name else ""
    usable = f", {gib(machine.usable_bytes):,.2f} usable" if machine.usable_bytes != machine.total_bytes else ""
    return f"{many}{name}{_gib(machine.total_bytes)}{usable}"


def _block(title: str, rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Names and what is said of each; what is too long for the screen goes on below its first word."""
    heads = columns(
        [["x" * _WIDEST_TITLE, "", ""], *([title if i == 0 else "", row[0], "|"] for i, row in enumerate(rows))],
        numbers_from=99, gap=2,
    )[1:]  # fmt: skip
    room = cells(heads[0]) - 1
    lines: list[str] = []
    for head, (_, text) in zip(heads, rows, strict=True):
        first, *rest = language.broken(language.said(text), width - room)
        lines += [head.removesuffix("|") + first, *(" " * room + more for more in rest)]
    return lines


def _run(row: Row) -> str:
    if not row.fits or (not row.is_whole and row.n_gpu_layers == 0):
        return _no(row)
    if row.task == "load":
        return _yes(row, f"{_needed(row)} of weights")
    by = _run_by(row)
    if not row.is_whole:
        return f"{_partly(row)} ({by})"
    at_once = f", {row.concurrency:,.0f} at once" if row.concurrency is not None and row.concurrency >= 2 else ""
    return _yes(row, f"context up to {row.sequence_length:,}{at_once} ({by})")


def _run_by(row: Row) -> str:
    named = row.quantization if row.quantization != "16 bit" else ""
    return " ".join(filter(None, (engine_named(row.method).title, named)))


def _partly(row: Row) -> str:
    """What is on the card of a file that has a part on the host."""
    host = f", {_gib(row.host_bytes)} on the host" if row.host_bytes is not None else ""
    if row.host_experts:
        return f"slowly: all but experts of {row.host_experts} layers{host}"
    return f"slowly: {row.n_gpu_layers} of {row.num_layers} layers{host}"


def _step(row: Row) -> str:
    more = [word for key, word in (("fsdp", "FSDP"), ("quantize_experts", "experts too")) if key in _settings(row)]
    return (_yes(row, _sizes(row)) if row.fits else _no(row)) + (f" ({', '.join(more)})" if more else "")


def _settings(row: Row) -> Mapping[str, object]:
    table = row.scenario.get("train")
    return table if isinstance(table, Mapping) else {}


def _sizes(row: Row) -> str:
    if not row.sequence_length:
        return f"{counted(row.micro_batch_size or 0, 'sample')} at once"
    return f"{row.micro_batch_size:,} × {row.sequence_length:,} tokens"


def _yes(row: Row, what: str) -> str:
    return f"tight ({percent(row.probability)}), {what}" if row.verdict == "tight" else f"yes, {what}"


def _no(row: Row) -> str:
    if row.total_needed is None:
        return "no"
    return f"no: needs {_needed(row)}"


def _needed(row: Row) -> str:
    return _gib(row.total_needed.expected) if row.total_needed is not None else ""


def _gib(size: float) -> str:
    return f"{gib(round(size)):,.2f} GiB"


def _train(rows: Sequence[Row]) -> list[str]:
    """Numbers of cards, the user's first, each with what it takes beside the defaults."""
    found = []
    for row in rows:
        settings = _settings(row)
        words = [word for key, word in (("fsdp", "FSDP"), ("checkpointing", "checkpointing")) if key in settings]
        words += ["tight"] if row.verdict == "tight" else []
        how = f" ({', '.join(words)})" if words else ""
        found.append(f"{_many(row):,} × {_card(str(row.scenario['gpu']))}{how}")
    return found or ["on no number of cards that is a power of two up to 1,024"]


def _many(row: Row) -> int:
    return int(str(row.scenario.get("num_gpus", 1)))


def _remarks(model: Model, answer: Door) -> Iterator[tuple[str, str]]:
    """What the answers are about, why some are missing, and what was chosen of the machine."""
    rows = [*answer.runs.items(), *((_SHORT[name], row) for name, row in answer.steps.items())]
    if any(not row.fits and row.total_needed is not None for _, row in rows) and reads_tokens(model):
        context, tokens = min(USEFUL_CONTEXT, model_length(model)), usual_length(model)
        yield "needs", f"for a context of {context:,} tokens; for a step of 1 × {tokens:,} tokens"
    whole = answer.steps.get("full")
    for reason in whole.reasons if whole is not None and not whole.fits else ():
        if "too little" not in reason:  # the row says what it needs
            yield "because", f"full: {reason}"
    tuned = answer.steps.get("qlora")
    if model.has(ExpertMlps) and tuned is not None and "quantize_experts" not in _settings(tuned):
        yield "note", "bitsandbytes leaves experts that are one fused tensor in 16 bit: --quantize-experts"
    said: dict[str, list[str]] = {}
    for name, row in rows:
        if row.refusal:
            said.setdefault(row.refusal, []).append(name)
    for refusal, names in said.items():
        yield "because", f"{', '.join(names)}: {clipped(refusal, 300)}"
    yield from (("note", note) for note in answer.question.machine.notes)
    gpu = answer.question.machine.gpu
    if gpu is not None and not gpu.runs_cuda_code:
        yield "note", not_of_cuda(gpu)


def family_lines(rows: Sequence[Row], width: int) -> list[str]:
    """What of the family fits, where this model does not."""
    lines = []
    for row in rows:
        how = _run(row) if row.task == "serve" else f"{_TITLES[row.method]}, {_step(row)}"
        what = _RUN if row.task == "serve" else _TUNE
        lines += wrapped_text(f"{'of its family':<15}", f"{what}: {model_title(row.model)}, {how}", width)
    return lines


def _next(answer: Door, width: int) -> list[str]:
    """Commands that fit, as they can be pasted; where there is none, what says which models the machine holds."""
    run = answer.best_run
    steps = [row for row in (answer.best_step,) if row is not None]
    rows = [*([run] if run is not None and run.is_whole else []), *steps, *answer.instead]
    if run is not None and all(row.task == "train" for row in rows):
        rows = [run, *rows]  # slowly, and by itself
    own = [row.command for row in rows] or [("vramwise", "fit", *answer.question.machine.flags())]
    if not any(row.task == "train" for row in rows):
        own += [row.command for row in answer.trained_on if row.fits][:1]
    lines: list[str] = []
    for words in own[:2]:
        lines += command_lines(words, width, "      " if lines else "next: ")
    return ["", *lines]


def command_lines(words: Sequence[str], width: int, head: str) -> list[str]:
    """A command behind `head`, quoted for a shell, over several lines where it is long; flags keep their values."""
    pieces: list[str] = []
    for word in words:
        quoted = shlex.quote(word)
        if pieces and pieces[-1].startswith("--") and " " not in pieces[-1] and not word.startswith("--"):
            pieces[-1] += f" {quoted}"
        else:
            pieces.append(quoted)
    lines = [head]
    for piece in pieces:
        if len(lines[-1]) + len(piece) + 3 > width and lines[-1] != head:
            lines[-1] += "\\"
            lines.append(" " * (len(head) + 2))
        lines[-1] += f"{piece} "
    return [line.rstrip() for line in lines]


def _run_cell(row: Row) -> str:
    if not row.fits:
        return "no"
    if not row.is_whole:
        return "slowly"
    text = f"{row.sequence_length:,}" if row.sequence_length else "yes"
    return text if row.verdict == "fits" else f"{text} tight"


def _step_cells(answer: Door) -> Iterator[str]:
    for name, row in answer.steps.items():
        if row.fits:
            yield "yes" if row.verdict == "fits" else "tight"
        elif name == "full" and answer.trained_on:
            yield f"{_many(answer.trained_on[0]):,} ×"
        else:
            yield "no"


def _card(card: str) -> str:
    """A card's name, short, with its memory."""
    gpu = find_gpu(card).gpu
    size = f" {gpu.memory_nominal_gb:.0f} GB" if gpu.memory_nominal_gb else ""
    short = card_name(gpu.id).replace("GeForce ", "").replace("Tesla ", "")
    short = short.split(" SXM")[0]
    return short if size.replace(" ", "") in short.replace(" ", "") else short + size
