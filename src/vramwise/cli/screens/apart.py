"""Servers of prefill and of decode as text."""

from __future__ import annotations

import shlex

from vramwise.cli.screens.door import command_lines
from vramwise.cli.screens.estimate import model_title, said
from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped_text
from vramwise.hardware import find_gpu
from vramwise.planner.apart import Apart, Servers
from vramwise.scenario import Scenario
from vramwise.units import format_bytes


def apart_screen(found: Apart, scenario: Scenario) -> list[Line]:
    """The lines of both kinds of servers for a load."""
    width, load = screen_width(), found.traffic
    name = found.prefill.result.model.id if found.prefill is not None else str(scenario.model)
    heading = f"{model_title(name)} · run · prefill and decode apart · {scenario.serve.engine}"
    asked = (
        f"{load.requests_per_second:,g} requests a second, {load.input_tokens:,} tokens in and "
        f"{load.output_tokens:,} out"
    )
    lines: list[Line] = [*wrapped_text("", heading, width), *wrapped_text("", asked, width), ""]
    if found.prefill is None or found.decode is None or found.transfer is None:
        return [*lines, *wrapped_text("", "nothing that was tried fits", width),
                *wrapped_text(f"{'binding':<12}", found.binding, width)]  # fmt: skip
    pools = (found.prefill, found.decode)
    with_money = all(one.cost_per_hour is not None for one in pools)
    heads = ["", "servers", "needs", "then", "at once", "tokens/s of one", *(["an hour"] if with_money else [])]
    lines += columns([heads, *(_row(one, with_money=with_money) for one in pools)], left={0, 3})
    lines += ["", *_times(found, width)]
    basis = (
        "servers are counted by the low end of their tokens/s: prefill between what published runs and what training "
        "reach of the matrix rate, decoding what published runs reach of the bandwidth; nobody waits in line, which "
        "--option 1 --export aisimulate writes a simulator's input for"
    )
    lines += wrapped_text("", basis, width)
    for number, one in enumerate(pools):
        lines += command_lines(shlex.split(one.command), width, "next: " if number == 0 else "      ")
    return lines


def _row(one: Servers, *, with_money: bool) -> list[str]:
    card = find_gpu(one.scenario.gpu or "").gpu.name
    slow, fast = one.tokens_per_s
    row = [
        one.role,
        f"{one.replicas:,} of {one.scenario.num_gpus} × {card}",
        format_bytes(int(one.result.needed.expected)),
        "–" if one.result.verdict is None else said(one.result.verdict),
        f"{one.requests_at_once:,}",
        f"{slow:,.0f} – {fast:,.0f}",
    ]
    return [*row, f"{one.cost_per_hour:,.2f}"] if with_money else row


def _times(found: Apart, width: int) -> list[Line]:
    moved, first, each = found.transfer, found.first_token_s, found.token_s
    assert moved is not None
    assert first is not None
    assert each is not None
    text = f"{format_bytes(moved.bytes)} of cache a prompt, {_ms(moved.seconds)}, {moved.link}"
    if moved.network_share is not None:
        text += f" ({100 * moved.network_share:,.1f} % of it in use)"
    lines = wrapped_text(f"{'transfer':<12}", text, width)
    if moved.network_share is not None and moved.network_share > 1:
        lines += wrapped_text(
            f"{'binding':<12}", "the network carries less than this load: more of it, or more nodes", width
        )
    lines += wrapped_text(f"{'first token':<12}", f"{_ms(first[0])} – {_ms(first[1])}", width)
    return [*lines, *wrapped_text(f"{'each token':<12}", f"{_ms(each[0])} – {_ms(each[1])} with the cache full", width)]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"
