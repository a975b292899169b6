"""`vramwise plan` as text: what was asked, the options best first, what stands in the way."""

from __future__ import annotations

import shlex

from vramwise.cli.screens.door import command_lines, family_lines
from vramwise.cli.screens.estimate import card_name, model_title, said
from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped_text
from vramwise.hardware import find_gpu
from vramwise.planner.option import Option
from vramwise.planner.plan import Plan
from vramwise.planner.suggestions import layers_on_the_host
from vramwise.units import counted, format_bytes

_HOURS_OF_A_DAY = 24
_HEADS = {"train": ["step", "tokens/s"], "serve": ["tokens", "at once", "tokens/s"]}


def plan_screen(plan: Plan) -> list[Line]:
    """The lines of a plan."""
    width = screen_width()
    lines: list[Line] = [*_heading(plan, width), *_reasons(plan, width), ""]
    if not plan.options:
        lines += wrapped_text("", "nothing that was tried fits: less has to be asked for", width)
    else:
        lines += _table(plan, width)
        lines += ["", *_commands(plan.options, width)]
    if plan.of_its_family is not None:
        lines += ["", *family_lines([plan.of_its_family], width)]
        lines += ["", *command_lines(plan.of_its_family.command, width, "next: ")]
    if plan.instead is not None:
        lines += ["", *_instead(plan.instead, width)]
    if plan.binding:
        lines += ["", *wrapped_text(f"{'binding':<12}", plan.binding, width)]
    lines += _links(plan, width)
    if any(option.request_speed is not None for option in plan.options):
        said = "tokens/s of one request at that context: what published runs reach of the bandwidth's ceiling"
        lines += wrapped_text("", said, width)
    done = "stopped; " if plan.interrupted else ""
    lines += wrapped_text("", f"{done}{counted(plan.searched, 'scenario')} estimated; sizes a GPU", width)
    return lines


def _reasons(plan: Plan, width: int) -> list[Line]:
    """The plain no, and why what was asked does not fit."""
    lines: list[Line] = [*wrapped_text("", plan.refusal, width)] if plan.refusal else []
    for reason in plan.reasons:
        lines += wrapped_text(f"{'because':<12}", reason, width)
    return lines


def _instead(option: Option, width: int) -> list[Line]:
    """What these cards do hold, as adapters."""
    need = format_bytes(int(option.result.needed.expected))
    verdict = "" if option.result.verdict is None else f", {said(option.result.verdict)}"
    words = f"{option.words} ({option.cost}): {need}{verdict}"
    lines = wrapped_text(f"{'instead':<12}", words, width)
    return [*lines, *wrapped_text(" " * 12, option.command, width, quoted=True)]


def _links(plan: Plan, width: int) -> list[Line]:
    """The first option over several cards where these are joined in another way."""
    if not plan.links:
        return []
    number = next(n for n, option in enumerate(plan.options, 1) if option.scenario.num_gpus > 1)
    rows = [
        [one.link, f"{one.step_time_s:,.3g} s", f"{one.slow_down:,.2f} ×", f"{one.exposed_s:,.3g} s"]
        for one in plan.links
    ]
    heads = [f"option {number} over", "step", "as long", "gathers"]
    return ["", *columns([heads, *rows], left={0}, gap=2)]


def _heading(plan: Plan, width: int) -> list[Line]:
    asked = plan.asked
    cards = (
        ""
        if asked.capacity is None
        else f"{int(str(asked.scenario.get('num_gpus') or 1)):,} × {card_name(asked.capacity.gpu)}"
    )
    unequal = asked.scenario.get("gpus")
    if isinstance(unequal, list | tuple) and unequal:
        cards = " + ".join(find_gpu(str(one)).gpu.name for one in unequal)
    words = [model_title(asked.model.id), plan.goal, *([cards] if cards else [])]
    need = format_bytes(int(asked.needed.expected))
    verdict = "" if asked.verdict is None else f", {said(asked.verdict)}"
    return [*wrapped_text("", " · ".join(words), width), *wrapped_text("", f"as asked: needs {need}{verdict}", width)]


def _table(plan: Plan, width: int) -> list[Line]:
    """One row of figures an option, and below it what is changed and what that asks."""
    with_money = any(option.cost_per_hour is not None for option in plan.options)
    heads = ["needs", "then", *_HEADS.get(str(plan.asked.scenario["task"]), [])]
    load = next((option.load for option in plan.options if option.load is not None), None)
    heads += [f"for {load.requests:,}"] if load is not None else []
    heads += ["an hour"] if with_money else []
    heads += ["days"] if plan.tokens is not None else []
    rows = [_figures(option, plan.tokens, with_money=with_money) for option in plan.options]
    table = columns([["", *heads], *([str(n), *row] for n, row in enumerate(rows, 1))], left={2})
    lines: list[Line] = [table[0]]
    for option, line in zip(plan.options, table[1:], strict=True):
        lines.append(line)
        asks = _cost(option)
        lines += wrapped_text("    ", f"{option.words}  ({asks})" if asks else option.words, width)
    return lines


def _cost(option: Option) -> str:
    """What an option asks, with how much memory of a host that is."""
    held = option.result.quantities.get("host_memory") or layers_on_the_host(option.scenario, option.result)
    if held is None:
        return "" if option.cost == "none" else option.cost
    size = f"{format_bytes(int(held.expected))} of host memory on a node"
    others = [one for one in option.cost.split("; ") if one not in ("host memory", "none")]
    return "; ".join((*others, size))


def _figures(option: Option, tokens: int | None, *, with_money: bool) -> list[str]:
    rate = option.tokens_per_second
    row = [
        format_bytes(int(option.result.needed.expected)),
        "–" if option.result.verdict is None else said(option.result.verdict),
        *_speeds(option),
    ]
    load = option.load
    if load is not None:
        row.append(f"{load.replicas:,} × {option.scenario.num_gpus:,} GPU")
    if with_money:
        price = option.cost_per_hour if load is None else load.cost_per_hour
        row.append("–" if price is None else f"{price:,.2f}")
    if tokens is not None:
        row.append("–" if not rate else f"{tokens / rate / 3600 / _HOURS_OF_A_DAY:,.2f}")
    return row


def _speeds(option: Option) -> list[str]:
    """Below the heads of its task."""
    of_task = {"train": _speed, "serve": _requests}.get(option.scenario.task)
    return [] if of_task is None else of_task(option)


def _speed(option: Option) -> list[str]:
    """Seconds of a step and tokens a second of all GPUs."""
    step, rate = option.result.quantities.get("step_time_s"), option.tokens_per_second
    return ["–" if step is None else f"{step.expected:,.3g} s", "–" if rate is None else f"{rate:,.0f}"]


def _requests(option: Option) -> list[str]:
    """Tokens of a request, and requests of that length at once."""
    serve = option.result.scenario.get("serve")
    settings = serve if isinstance(serve, dict) else {}
    length = settings.get("max_model_len") or settings.get("n_ctx")
    many = option.result.quantities.get("max_concurrency")
    speed = option.request_speed
    return [
        "–" if length is None else f"{length:,}",
        "–" if many is None else f"{many.expected:,.1f}",
        "–" if speed is None else f"{speed.usual[0]:,.0f} – {speed.usual[1]:,.0f}",
    ]


def _commands(options: tuple[Option, ...], width: int) -> list[Line]:
    """The command of the best option, which can be copied; the others' are in --json and behind --option."""
    return list(command_lines(shlex.split(options[0].command), width, "next: "))
