"""`vramwise measure MODEL`: runs a scenario for real and prints estimated, measured and their difference."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from vramwise.cli.brief_help import STEP
from vramwise.cli.measured_runs import (
    Plan,
    estimated_and_measured,
    estimated_of,
    keep_lessons,
    plan_of,
    show_kept,
)
from vramwise.cli.parsing import CommandParser
from vramwise.cli.scenario_flags import add_scenario_arguments, scenario_from_flags, take_scenario_file
from vramwise.errors import UsageError, VramwiseError

if TYPE_CHECKING:
    from vramwise.measure.outcome import Measured
    from vramwise.result import Result

HELP = "run a scenario on the GPU at hand, measured beside estimated"
DEFAULT_TIMEOUT_S = "3600"
MOST_SIZES = 1_000_000


def add_arguments(parser: CommandParser) -> None:
    add_scenario_arguments(parser, calibrates=True)
    parser.brief = (
        {
            **STEP,
            "measuring": (
                "--device", "--steps", "--repeats", "--sweep", "--largest", "--memory-cap", "--history", "--timeout",
                "--save",
            ),
            "answers": ("--json", "--scenario"),
        },
        (
            "vramwise measure gpt2 --task train --micro-batch-size 4",
            "vramwise measure gpt2 --task train --largest micro_batch_size",
            "vramwise measure tiny.json --task train --device cpu --repeats 3",
        ),
    )  # fmt: skip
    runs = parser.add_argument_group("measuring")
    runs.add_argument("--device", metavar="DEVICE", help="cuda, cuda:1, … or cpu (tiny models); default: the first GPU")
    runs.add_argument("--steps", metavar="N", default="3", help="training steps, or calls of generate (at least 3)")
    runs.add_argument("--repeats", metavar="N", default="1", help="fresh processes; the spread is the interval")
    runs.add_argument(
        "--sweep",
        nargs="+",
        action="extend",
        metavar="KEY=VALUES",
        help="runs over sizes: micro_batch_size=1,2,4 or a..b",
    )
    runs.add_argument("--largest", metavar="KEY", help="search the largest micro_batch_size, sequence_length, …")
    runs.add_argument("--memory-cap", metavar="SIZE", help="let the card stand for a smaller one, such as 24GiB")
    runs.add_argument("--history", metavar="FILE", help="write the allocator's history (for vramwise oom)")
    runs.add_argument("--timeout", metavar="SECONDS", default=DEFAULT_TIMEOUT_S, help="of one run")
    runs.add_argument("--save", metavar="FILE.jsonl", help="add the measured cases to a file that accuracy reads")
    runs.add_argument("--json", action="store_true", help="print the results as JSON and nothing else")


def run(args: argparse.Namespace) -> int:
    """Print what was measured; 0 also where a run went out of memory, 1 where it failed, 130 when interrupted.

    Raises UsageError for options that exclude one another.
    """
    from vramwise.measure.sweep import parse_sweep

    take_scenario_file(args)
    scenario = scenario_from_flags(args)
    plan = plan_of(args, scenario)
    if args.sweep and args.largest:
        raise UsageError("--sweep and --largest are two questions: leave one of them out")
    if plan.history and (args.sweep or args.largest or plan.repeats > 1):
        raise UsageError("--history is of one run: leave out --sweep, --largest and --repeats")
    if args.largest:
        return _largest(args, plan)
    if args.sweep:
        return _sweep(args, plan, parse_sweep(args.sweep, scenario.task))
    return _single(args, plan)


def _single(args: argparse.Namespace, plan: Plan) -> int:
    estimated, measured = estimated_and_measured(plan, "measuring")
    _save(args, plan, measured)
    learned = keep_lessons(args, plan)
    if args.json:
        _print(_json(plan, estimated, measured) | _as_key(learned))
    else:
        from vramwise.cli.screens.measured import measured_screen
        from vramwise.cli.screens.paint import show

        show(measured_screen(estimated, measured, plan.device))
        show_kept(learned)
    return 130 if measured.interrupted else 1 if measured.broken else 0


def _sweep(args: argparse.Namespace, plan: Plan, values: Mapping[str, list[int]]) -> int:
    from vramwise.measure.sweep import fitted, grid, size_of

    rows: list[tuple[dict[str, int], Result | None, Measured]] = []
    failed: list[tuple[dict[str, int], str]] = []
    interrupted = False
    all_sizes = grid(values)
    for i, sizes in enumerate(all_sizes, 1):
        label = f"run {i} of {len(all_sizes)}: " + ", ".join(f"{key} {value}" for key, value in sizes.items())
        try:
            estimated, measured = estimated_and_measured(plan.sized(sizes), label)
        except KeyboardInterrupt:
            interrupted = True
            break
        except VramwiseError as error:
            if not rows:
                raise
            failed.append((sizes, str(error)))
            continue
        interrupted = measured.interrupted
        if interrupted:
            break
        rows.append((sizes, estimated, measured))
        _save(args, plan.sized(sizes), measured)
    name = ""
    points = []
    for sizes, _, measured in rows:
        peak = measured.result.quantities.get("peak_allocated")
        if peak is not None:
            name, size = size_of(plan.scenario.task, list(values), {**_table(measured), **sizes})
            points.append((size, int(peak.expected)))
    line = fitted(name, points)
    learned = keep_lessons(args, plan)
    if args.json:
        runs = [{"sizes": sizes, **_json(plan, estimated, measured)} for sizes, estimated, measured in rows]
        fit = line and {
            "x": line.x, "fixed_bytes": line.fixed, "bytes_per_x": line.slope, "r_squared": line.r_squared,
            "residual_bytes": list(line.residuals),
        }  # fmt: skip
        lost = [{"sizes": sizes, "reason": reason} for sizes, reason in failed]
        _print({"runs": runs, "failed": lost, "fit": fit, "interrupted": interrupted} | _as_key(learned))
    else:
        from vramwise.cli.screens.measured import sweep_screen
        from vramwise.cli.screens.paint import show

        show(sweep_screen(rows, failed, line, len(all_sizes), plan.device))
        show_kept(learned)
    return 130 if interrupted else 0


def _table(measured: Measured) -> Mapping[str, object]:
    scenario = measured.result.scenario
    found: Mapping[str, object] = scenario.get(str(scenario["task"]), {})
    return found


def _largest(args: argparse.Namespace, plan: Plan) -> int:
    from vramwise.measure.sweep import largest_that_fits, parse_sweep

    key = args.largest.replace("-", "_")
    parse_sweep([f"{key}=1"], plan.scenario.task)
    if plan.cap_bytes is None and plan.on_cpu:
        raise UsageError("--largest on a CPU needs --memory-cap, such as --memory-cap 64MiB")
    guess = next(_guesses(plan, key), 1)
    tried: dict[int, Measured] = {}

    def fits(size: int) -> bool:
        _, measured = estimated_and_measured(plan.sized({key: size}), f"{key} {size}")
        if measured.interrupted:
            raise KeyboardInterrupt
        tried[size] = measured
        _save(args, plan.sized({key: size}), measured)
        return _is_within(measured, plan)

    found, interrupted = None, False
    try:
        found = largest_that_fits(fits, guess, MOST_SIZES)
    except KeyboardInterrupt:
        interrupted = True
    learned = keep_lessons(args, plan)
    if args.json:
        runs = [{"size": size, "measured": measured.result.to_dict()} for size, measured in sorted(tried.items())]
        answer = {"key": key, "largest": found, "estimated": guess, "runs": runs, "interrupted": interrupted}
        _print(answer | _as_key(learned))
    else:
        from vramwise.cli.screens.measured import largest_screen
        from vramwise.cli.screens.paint import show

        show(largest_screen(key, found, guess, tried, plan.cap_bytes))
        show_kept(learned)
    return 130 if interrupted else 0


def _guesses(plan: Plan, key: str) -> Iterator[int]:
    """The estimate's largest batch under the cap, else the size that was asked for."""
    capped = plan.scenario if plan.cap_bytes is None else plan.scenario.replace(gpu_total_bytes=plan.cap_bytes)
    estimated = estimated_of(replace(plan, scenario=capped))
    if estimated is not None and key in ("micro_batch_size", "batch_size") and "max_batch" in estimated.quantities:
        yield max(1, int(estimated.quantities["max_batch"].expected))
    yield int(getattr(plan.scenario.settings, key, None) or 1)


def _is_within(measured: Measured, plan: Plan) -> bool:
    """Whether a run ended well and stayed below the cap."""
    if measured.result.quantities["oom"].expected:
        return False
    if measured.broken:
        raise VramwiseError(f"the run failed: {measured.result.notes[-1]}")
    peak = measured.result.quantities.get("peak_reserved") or measured.result.quantities.get("peak_allocated")
    return peak is not None and (plan.cap_bytes is None or int(peak.expected) <= plan.cap_bytes)


def _save(args: argparse.Namespace, plan: Plan, measured: Measured) -> None:
    if not args.save or measured.interrupted:
        return
    from vramwise.measure.saving import case_of, save_case

    model = plan.scenario.model if isinstance(plan.scenario.model, str) else measured.result.model.id
    save_case(args.save, case_of(measured, plan.scenario.to_dict(), model, plan.device))


def _json(plan: Plan, estimated: Result | None, measured: Measured) -> dict[str, object]:
    from vramwise.measure.difference import differences

    rows = differences(estimated, measured.result, on_cpu=plan.on_cpu)
    return {
        "measured": measured.result.to_dict(),
        "estimated": estimated.to_dict() if estimated else None,
        "differences": [
            {
                "name": r.name, "term": r.depth == 1, "estimated": r.estimated, "measured": r.measured,
                "relative": r.relative, "in_interval": r.in_interval,
            }
            for r in rows
        ],
        "modules": [
            {"name": m.name, "count": m.count, "weights": m.weights, "kept": m.kept} for m in measured.modules
        ],
        "failures": [{"asked_bytes": f.asked, "cause": f.cause, "kind": f.kind} for f in measured.failures],
        "ranks": [rank.to_dict() for rank in measured.ranks],
        "environment": dict(measured.facts),
    }  # fmt: skip


def _as_key(learned: dict[str, object] | None) -> dict[str, object]:
    return {} if learned is None else {"calibrated": learned}


def _print(value: Mapping[str, object]) -> None:
    json.dump(value, sys.stdout)
    print()
