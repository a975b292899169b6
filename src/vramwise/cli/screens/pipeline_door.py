"""The screen of a pipeline without a task: components, what each way of running it needs, and the usual cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramwise.cli.language import cells
from vramwise.cli.screens.door import command_lines
from vramwise.cli.screens.estimate import card_name, model_title
from vramwise.cli.screens.overview import CARDS, card_title, fitted_table
from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped_text
from vramwise.hardware import Gpu, find_gpu
from vramwise.result import Result
from vramwise.units import format_bytes

_MOST_USUAL = "4090"


def pipeline_screen(ways: Mapping[str, tuple[Result, Sequence[str]]]) -> list[Line]:
    """Headline, weights by component, a line a way, and what to ask next: commands of ways that fit."""
    answers = {way: one for way, (one, _) in ways.items()}
    first = next(iter(answers.values()))
    table = first.scenario["generate"]
    title = f"{model_title(first.model.id)} · {first.model.num_parameters:,} parameters · {table['image_size']}"
    frames = table.get("num_frames") or 1
    title += f" · {frames} frames" if frames > 1 else ""
    weights = first.phases[0].components.find("weights")
    parts = [] if weights is None else [["  " + one.name, format_bytes(one.bytes, "auto")] for one in weights.children]
    width = screen_width()
    return [
        *wrapped_text("", title, width),
        "",
        f"weights  {format_bytes(int(first.quantities['weights'].expected), 'auto')} in {table['dtype']}",
        *columns(parts),
        "",
        *(_on_a_card(answers) if first.capacity is not None else _on_the_usual_cards(answers)),
        *_next(ways, width),
    ]


def _next(ways: Mapping[str, tuple[Result, Sequence[str]]], width: int) -> list[str]:
    """The first way that fits and the one that needs least: on the card that was named, else on the most usual one on
    which any does."""
    for card in (_MOST_USUAL, *CARDS):
        usable = find_gpu(card).gpu.usable_bytes or 0
        fitting = [
            (int(one.quantities["total_needed"].expected), command if one.verdict else [*command, "--gpu", card])
            for one, command in ways.values()
            if (one.verdict.fits if one.verdict else one.quantities["total_needed"].expected <= usable)
        ]
        if fitting:
            least = min(fitting)
            told = command_lines(fitting[0][1], width, "next: ")
            return ["", *told, *(command_lines(least[1], width, "      ") if least != fitting[0] else [])]
    return []


def _needs(one: Result) -> str:
    return format_bytes(int(one.quantities["total_needed"].expected))


def _on_a_card(answers: Mapping[str, Result]) -> list[str]:
    first = next(iter(answers.values()))
    assert first.capacity is not None
    rows = [["", "needs", "fullest at", card_name(first.capacity.gpu)]]
    for way, one in answers.items():
        word = one.verdict.word if one.verdict is not None else ""
        rows.append([way, _needs(one), one.peak_phase or "", word])
    return columns(rows, gap=2)


def _on_the_usual_cards(answers: Mapping[str, Result]) -> list[str]:
    gpus = [find_gpu(card).gpu for card in CARDS]
    rows = [["", "needs", *map(card_title, CARDS)]]
    for way, one in answers.items():
        need = int(one.quantities["total_needed"].expected)
        rows.append([way, _needs(one), *("yes" if need <= (gpu.usable_bytes or 0) else "no" for gpu in gpus)])
    table = list(fitted_table(rows))
    return table if max(map(cells, table)) <= screen_width() else _smallest_cards(answers, gpus)


def _smallest_cards(answers: Mapping[str, Result], gpus: Sequence[Gpu]) -> list[str]:
    """Of each way the smallest usual card that holds it: what a narrow screen has room for."""
    rows = [["", "needs", "smallest card"]]
    for way, one in answers.items():
        need = int(one.quantities["total_needed"].expected)
        held = (card_title(gpu.id) for gpu in gpus if need <= (gpu.usable_bytes or 0))
        rows.append([way, _needs(one), next(held, "none of the usual")])
    return columns(rows, gap=2, left={2})
