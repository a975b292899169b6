"""`vramwise plan MODEL`: what to change, or how many of which GPUs in which layout, so that it fits."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Iterable

from vramwise.cli.brief_help import JOB
from vramwise.cli.file_arguments import (
    add_export_arguments,
    add_file_arguments,
    launch_of_files,
    print_export,
    refuse_a_file_that_is_there,
)
from vramwise.cli.parsing import CommandParser
from vramwise.cli.plan_apart import plan_apart, traffic_of
from vramwise.cli.plan_numbers import number, positive
from vramwise.cli.scenario_flags import add_scenario_arguments, scenario_from_flags, take_scenario_file
from vramwise.errors import DOES_NOT_FIT, UsageError, clipped, nearest
from vramwise.planner.inventory import read_inventory
from vramwise.planner.option import GOALS, RANKS, RECOMPUTE, Option, Wishes
from vramwise.planner.plan import Plan, plan
from vramwise.planner.recorded_shapes import recalled
from vramwise.processes import processes_beside
from vramwise.scenario import Scenario
from vramwise.scenario.definition import KINDS, TABLES

HELP = "what to change, or how many of which GPUs, so that it fits"
_GOAL_OF = {"serve": "run", "generate": "run", "train": "fine-tune"}
"""The first goal of a task."""


def add_arguments(parser: CommandParser) -> None:
    add_scenario_arguments(parser)
    add_file_arguments(parser)
    parser.takes_command = True
    parser.brief = (
        {
            **JOB,
            "the plan": ("--goal", "--rank", "--risk", "--no-offload", "--inventory"),
            "answers": ("--option", "--export", "--json"),
        },
        (
            "vramwise plan qwen3-8b --gpu 4060 --goal fine-tune",
            "vramwise plan llama-3.1-70b --gpu h100 --goal train --rank time",
            "vramwise plan --gpu 4090 -- vllm serve MODEL …",
            "vramwise plan train.yaml --gpu 4090           a tool's file as it is",
        ),
    )
    parser.add_argument("--goal", metavar="|".join(GOALS), help="what the model is for (--task implies one)")
    parser.add_argument(
        "--rank", metavar="|".join(RANKS), default=RANKS[0], help="what the best option is (default: least change)"
    )
    parser.add_argument("--risk", metavar="P", help="the chance of running out that is taken, such as 0.05")
    parser.add_argument("--keep", metavar="KEY,…", default="", help="settings that stay as they are")
    parser.add_argument("--no-offload", action="store_true", help="nothing moves to host memory")
    parser.add_argument(
        "--max-recompute", metavar="|".join(RECOMPUTE), default=RECOMPUTE[-1], help="the most checkpointing"
    )
    parser.add_argument(
        "--inventory", metavar="FILE", help="the GPUs that there are: [[gpu]] id, count, price_per_hour"
    )
    parser.add_argument("--price", metavar="N", help="of one GPU an hour")
    parser.add_argument("--tokens", metavar="N", help="of the whole training (1e9, 15T): days and GPU-hours")
    parser.add_argument(
        "--requests", metavar="N", help="of the longest length at once: replicas of a server, and cards"
    )
    parser.add_argument(
        "--request-rate",
        metavar="N",
        help="requests a second: prefill and decode on servers of their own, for that load",
    )
    parser.add_argument("--input-tokens", metavar="N", help="with --request-rate: tokens of a prompt")
    parser.add_argument("--output-tokens", metavar="N", help="with --request-rate: tokens of a reply")
    parser.add_argument("--save", metavar="FILE", help="keep the search for layouts; the same question goes on from it")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON and nothing else")
    parser.add_argument(
        "--option", metavar="N", help="the command of the N-th option alone; with --export, written for a tool"
    )
    add_export_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the plan; 0 where something fits, 3 where nothing does."""
    _refuse_contradictions(args)
    args.launch = launch_of_files(args)
    take_scenario_file(args)
    scenario = _scenario(args)
    wishes = _wishes(args, scenario.task)
    _refuse_wishes_against_what_is_asked(scenario, wishes)
    pools = read_inventory(args.inventory) if args.inventory is not None else []
    traffic = traffic_of(args, scenario.task)
    if traffic is not None:
        return plan_apart(args, scenario, traffic, wishes, pools)
    from vramwise.cli.screens.progress import Progress

    gc.set_threshold(200_000, 50, 1_000)  # a search makes much and drops little of it
    progress = Progress("plan", 0, "scenarios")
    try:
        with recalled(scenario.model):
            found = plan(scenario, wishes, pools, progress.at, args.save, processes_beside())
    finally:
        progress.end()
    if args.option is not None:
        option = _option(args.option, found)
        if args.export is not None:
            return print_export(args, option.scenario, option.result)
        print(option.command)
    elif args.json:
        json.dump(found.to_dict(), sys.stdout)
        print()
    else:
        from vramwise.cli.screens.paint import show
        from vramwise.cli.screens.plan import plan_screen

        show(plan_screen(found))
    return 0 if found.options else DOES_NOT_FIT


def _scenario(args: argparse.Namespace) -> Scenario:
    """The scenario of the flags; a goal says the task. Raises UsageError where neither is said."""
    described = args.scenario is not None or bool(args.engine_command or args.launch)
    if args.goal is not None:
        _one_of("--goal", args.goal, GOALS)
    if args.task is None and not described:
        if args.goal is None:
            raise UsageError(f"--goal is missing: expected one of {', '.join(GOALS)}")
        args.task = _task_of(args)
    scenario = scenario_from_flags(args)
    own = _GOAL_OF.get(scenario.task)
    goal = args.goal or own
    if own is None or goal is None or GOALS[own] != GOALS[goal]:
        allowed = f"--task {GOALS[goal]}" if goal is not None else "--task serve, generate or train"
        raise UsageError(f"a plan of this needs {allowed}, got --task {scenario.task}")
    return scenario


def _task_of(args: argparse.Namespace) -> str:
    """The goal's task; what a pipeline of Diffusers runs is a generation."""
    if args.goal == "run" and args.engine is None and args.model is not None:
        from vramwise.sources import resolve

        if "_class_name" in resolve(args.model).config:
            return "generate"
    return GOALS[args.goal]


def _wishes(args: argparse.Namespace, task: str) -> Wishes:
    """Raises UsageError for a wish that cannot be understood."""
    goal = args.goal or _GOAL_OF[task]
    keep = frozenset(key.strip().replace("-", "_") for key in args.keep.split(",") if key.strip())
    keys = {*KINDS[Scenario], *KINDS[TABLES[task]]}
    strange = sorted(keep - keys)
    if strange:
        near = nearest(strange[0], sorted(keys))
        hint = f": did you mean {', '.join(near)}?" if near else ""
        raise UsageError(f'--keep: unknown setting "{clipped(strange[0])}"{hint}')
    risk = None if args.risk is None else number("--risk", args.risk)
    if risk is not None and not 0 < risk < 1:
        raise UsageError(f"--risk: expected a probability between 0 and 1, got {clipped(args.risk)}")
    requests = positive("--requests", args.requests)
    if requests is not None and (task != "serve" or requests != int(requests)):
        said = f"expected a whole number, got {clipped(args.requests)}" if task == "serve" else "goes with --goal run"
        raise UsageError(f"--requests: {said}")
    return Wishes(
        goal=goal,
        rank=_one_of("--rank", args.rank, RANKS),
        risk=risk,
        keep=keep,
        offloads=not args.no_offload,
        most_recompute=_one_of("--max-recompute", args.max_recompute, RECOMPUTE),
        price_per_hour=positive("--price", args.price),
        tokens=None if (tokens := positive("--tokens", args.tokens)) is None else round(tokens),
        requests=None if requests is None else int(requests),
    )


def _refuse_wishes_against_what_is_asked(scenario: Scenario, wishes: Wishes) -> None:
    """Raises UsageError for wishes that the scenario itself does not keep to."""
    if scenario.task != "train":
        return
    train = scenario.train
    if RECOMPUTE.index(train.checkpointing) > RECOMPUTE.index(wishes.most_recompute):
        raise UsageError(
            f"--max-recompute {wishes.most_recompute} and checkpointing {train.checkpointing} contradict one another: "
            "leave out one of them"
        )
    moved = [
        key for key in ("offload_optimizer", "offload_params", "offload_activations") if getattr(train, key) != "none"
    ]
    if moved and not wishes.offloads:
        raise UsageError(
            f"--no-offload and {moved[0]} {getattr(train, moved[0])} contradict one another: leave out one"
        )


def _one_of(name: str, given: str, allowed: Iterable[str]) -> str:
    names = list(allowed)
    if given not in names:
        near = nearest(given, names)
        hint = f": did you mean {', '.join(near)}?" if near else ""
        raise UsageError(f'{name}: expected one of {", ".join(names)}, got "{clipped(given)}"{hint}')
    return given


def _refuse_contradictions(args: argparse.Namespace) -> None:
    """Raises UsageError for flags of which one would have no effect."""
    if args.option is not None and not (args.option.isdecimal() and int(args.option) > 0):
        raise UsageError(f"--option: expected the number of an option, from 1, got {clipped(args.option)}")
    if args.option is not None and args.json and args.export is None:
        raise UsageError("--json holds every option's command: leave out --option")
    if args.export is None:
        if args.output is not None:
            raise UsageError("-o: writes what --option N --export TOOL makes: add them, or leave out -o")
        return
    if args.option is None:
        raise UsageError("--export writes one option: --option N says which")
    from vramwise.interop.export.tools import tool_named

    tool_named(args.export)
    refuse_a_file_that_is_there(args)


def _option(number: str, found: Plan) -> Option:
    """Raises UsageError for an option that there is not."""
    there = len(found.options)
    if int(number) > there:
        allowed = f"1 to {there}" if there else "none: nothing fits"
        raise UsageError(f"--option: expected {allowed}, got {clipped(number)}")
    return found.options[int(number) - 1]
