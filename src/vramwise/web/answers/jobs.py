"""What searches and judges: plans, what fits on a card, checks, batches, and exports to tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from vramwise.errors import UsageError, clipped, nearest
from vramwise.web.bodies import (
    Body,
    choice_in,
    maybe_text,
    number_in,
    only,
    scenario_in,
    switch_in,
    table_in,
    text_in,
    texts_in,
    whole_in,
)

if TYPE_CHECKING:
    from vramwise.planner.option import Wishes

MOST_LINES = 10_000
MOST_ROWS = 5_000
DRY_RUN_S = 540.0


def plan(body: Body) -> dict[str, Any]:
    """`{"scenario", "goal", "rank", "risk", "keep", "offloads", "max_recompute", "price", "tokens"}`.

    Raises UsageError where the scenario's task is not the goal's.
    """
    from vramwise.planner.option import GOALS
    from vramwise.planner.plan import plan as planned
    from vramwise.processes import processes_beside

    only(body, "scenario", "goal", "rank", "risk", "keep", "offloads", "max_recompute", "price", "tokens")
    scenario = scenario_in(body)
    usual = next((goal for goal, task in GOALS.items() if task == scenario.task), "run")
    goal = choice_in(body, "goal", list(GOALS), usual)
    if GOALS[goal] != scenario.task:
        raise UsageError(f"a plan to {goal} needs the task {GOALS[goal]}, the scenario's is {scenario.task}")
    return planned(scenario, _wishes(body, goal), processes=processes_beside()).to_dict()


def _wishes(body: Body, goal: str) -> Wishes:
    from vramwise.planner.option import GOALS, RANKS, RECOMPUTE, Wishes
    from vramwise.scenario import Scenario
    from vramwise.scenario.definition import KINDS, TABLES

    keep = texts_in(body, "keep")
    known = {*KINDS[Scenario], *KINDS[TABLES[GOALS[goal]]]}
    strange = next((key for key in keep if key not in known), None)
    if strange is not None:
        close = nearest(strange, sorted(known))
        raise UsageError(f'keep: unknown setting "{clipped(strange)}"{f": did you mean {close[0]}?" if close else ""}')
    risk, tokens = number_in(body, "risk"), number_in(body, "tokens")
    if risk is not None and risk >= 1:
        raise UsageError(f"risk: expected a probability between 0 and 1, got {risk:g}")
    return Wishes(
        goal=goal,
        rank=choice_in(body, "rank", RANKS, RANKS[0]),
        risk=risk,
        keep=frozenset(keep),
        offloads=switch_in(body, "offloads", True),
        most_recompute=choice_in(body, "max_recompute", RECOMPUTE, RECOMPUTE[-1]),
        price_per_hour=number_in(body, "price"),
        tokens=None if tokens is None else round(tokens),
    )


def dry_run(body: Body) -> dict[str, Any]:
    """`{"scenario"}`: what `vramwise dry-run --json` prints. Raises UsageError where torch is not installed."""
    from vramwise.dryrun.scenario import dry_runs

    only(body, "scenario")
    ((result, _),) = dry_runs([scenario_in(body)], timeout_s=DRY_RUN_S)
    return result.to_dict()


def fit(body: Body) -> dict[str, Any]:
    """`{"gpu", "num_gpus", … of the machine, "task", "family", "params": [from, to], "models", "limit"}`.

    With `limit` the search ends when so many rows run well, the largest models first.
    """
    from vramwise.cli.screens.fit import runs_well, sorted_rows
    from vramwise.planner.beside import WORTH_BESIDE, Beside
    from vramwise.planner.catalog_fit import TASKS, candidates, rows_by_model
    from vramwise.planner.machine import machine_keys, machine_of
    from vramwise.processes import processes_beside
    from vramwise.records import replace

    own = ("task", "family", "params", "models", "limit")
    only(body, *machine_keys(), *own)
    machine = machine_of(**{key: value for key, value in body.items() if key not in own})
    task = choice_in(body, "task", TASKS, "") if body.get("task") else None
    least, most = _params(body.get("params"))
    asked = candidates(machine, tasks=(task,) if task else TASKS, family=maybe_text(body, "family"), least=least,
                       most=most)  # fmt: skip
    if body.get("models") is not None:
        chosen = set(texts_in(body, "models"))
        asked = replace(asked, ids=tuple(one for one in asked.ids if one in chosen))
    limit = whole_in(body, "limit", MOST_ROWS, most=MOST_ROWS)
    found, good = {}, 0
    with Beside(processes_beside() if len(asked.ids) >= WORTH_BESIDE else 1) as beside:
        for model, rows in rows_by_model(asked, replays=False, cached=True, beside=beside):
            found[model] = rows
            good += len(rows) if rows and runs_well(rows) else 0
            if good >= limit:
                break
    ordered = [row.to_dict() for rows in sorted_rows(asked, found, "size") for row in rows]
    return {
        "gpu": machine.gpu_id, "num_gpus": machine.num_gpus, "usable_bytes": machine.usable_bytes,
        "searched": len(found), "rows": ordered[:limit],
    }  # fmt: skip


def _params(value: object) -> tuple[float, float]:
    if value is None:
        return 0, float("inf")
    if isinstance(value, list) and len(value) == 2:
        ends = [float("inf") if one is None else one for one in value]
        if all(isinstance(one, int | float) and not isinstance(one, bool) and one >= 0 for one in ends):
            return ends[0], ends[1]
    raise UsageError("params: expected [least, most] numbers of parameters, null for no end")


def check(body: Body) -> dict[str, Any]:
    """`{"command"}` (a command line or its words) or `{"scenario"}`, with `settings` over it: what `check` prints.

    Raises UsageError for both, and for a command line that starts nothing.
    """
    from vramwise.checking.job import check as checked
    from vramwise.interop.files.pasted_commands import words_of_command

    only(body, "command", "scenario", "settings")
    settings = table_in(body, "settings") if body.get("settings") is not None else {}
    if "command" in body and "scenario" in body:
        raise UsageError("command and scenario both say what to check: leave out one")
    if "scenario" in body:
        return checked(table_in(body, "scenario"), **settings).to_dict()
    command = body.get("command")
    words = list(texts_in(body, "command")) if isinstance(command, list) else words_of_command(text_in(body, "command"))
    if len(words) < 2:
        raise UsageError("command: expected a whole command line, such as vllm serve MODEL --tensor-parallel-size 2")
    return checked(words, **settings).to_dict()


def batch(body: Body) -> dict[str, Any]:
    """`{"lines": [scenario, …]}` or `{"text"}` of JSON Lines: `{"answers": [{"id", "result"} or {"id", "error"}]}`.

    `limits`: trainings are answered with `max_batch` and `max_seq` too, which takes up to ten times as long.
    Raises UsageError for a key or a value that it does not take.
    """
    from vramwise.cli.batch import answers
    from vramwise.estimation import estimate

    only(body, "lines", "text", "limits")
    limits = body.get("limits", False)
    if not isinstance(limits, bool):
        raise UsageError("limits: expected true or false")
    return {"answers": [json.loads(one.text) for one in answers(_lines(body), estimate, limits=limits)]}


def _lines(body: Body) -> Iterator[tuple[int, bytes | None]]:
    import io

    from vramwise.scenario.files import numbered_lines

    if "text" in body:
        found = list(numbered_lines(io.BytesIO(text_in(body, "text").encode("utf-8", "replace"))))
    else:
        given = body.get("lines")
        if not isinstance(given, list):
            raise UsageError("lines: expected a list of scenarios (or text: JSON Lines)")
        found = [(number, json.dumps(one).encode()) for number, one in enumerate(given, 1)]
    if len(found) > MOST_LINES:
        raise UsageError(f"{len(found):,} lines; at most {MOST_LINES:,} at once: vramwise batch takes any number")
    return iter(found)


def export(body: Body) -> dict[str, Any]:
    """`{"scenario", "tool"}`: the command or file with which a tool runs it, and what that cannot say."""
    from vramwise.interop.export import TOOL_NAMES
    from vramwise.interop.export import export as exported

    only(body, "scenario", "tool")
    return exported(scenario_in(body), choice_in(body, "tool", list(TOOL_NAMES), "")).to_dict()
