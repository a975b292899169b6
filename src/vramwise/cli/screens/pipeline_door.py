"""The screen of a pipeline without a task: components, what each way of running it needs, and the usual cards."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from vramwise.cli.screens.estimate import card_name, model_title
from vramwise.cli.screens.overview import CARDS, card_title, fitted_table
from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped_text
from vramwise.hardware import find_gpu
from vramwise.result import Result
from vramwise.units import format_bytes


def pipeline_screen(answers: Mapping[str, Result], asked: str) -> list[Line]:
    """Headline, weights by component, a line a way, and what to ask next."""
    first = next(iter(answers.values()))
    table = first.scenario["generate"]
    title = f"{model_title(first.model.id)} · {first.model.num_parameters:,} parameters · {table['image_size']}"
    frames = table.get("num_frames") or 1
    title += f" · {frames} frames" if frames > 1 else ""
    weights = first.phases[0].components.find("weights")
    parts = [] if weights is None else [["  " + one.name, format_bytes(one.bytes, "auto")] for one in weights.children]
    ask = shlex.quote(asked)
    return [
        *wrapped_text("", title, screen_width()),
        "",
        f"weights  {format_bytes(int(first.quantities['weights'].expected), 'auto')} in {table['dtype']}",
        *columns(parts),
        "",
        *(_on_a_card(answers) if first.capacity is not None else _on_the_usual_cards(answers)),
        "",
        f"next: vramwise estimate {ask} --task generate --gpu 4090",
        f"      vramwise estimate {ask} --task generate --image {table['image_size']} --offload model --vae-tiling",
    ]


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
    return list(fitted_table(rows))
