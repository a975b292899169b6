"""`vramwise dry-run MODEL` and `dry-run -- python FILE`: real steps on fake tensors; prints what `estimate` prints."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vramwise.cli import flag
from vramwise.cli.brief_help import STEP
from vramwise.cli.parsing import CommandParser
from vramwise.cli.scenario_flags import add_scenario_arguments, given_keys, scenario_from_flags, take_scenario_file
from vramwise.errors import DOES_NOT_FIT, UsageError, VramwiseError, clipped

if TYPE_CHECKING:
    from vramwise.dryrun.command import Run
    from vramwise.measure.sweep import Line as FittedLine
    from vramwise.result import Result
    from vramwise.scenario import Scenario

HELP = "run the real model on fake tensors: no GPU, no weights, every allocation"
_OF_SCRIPTS = ("gpu", "gpu_total_bytes")
_OF_SERVERS = (*_OF_SCRIPTS, "gpu_free_bytes", "reserve_bytes", "num_gpus", "source", "revision")
_OF_MODULES = (
    *_OF_SCRIPTS, "model", "task", "precision", "param_dtype", "optimizer", "optimizer_impl", "checkpointing",
    "gradient_accumulation_steps", "clip_grad_norm", "dtype",
)  # fmt: skip
DEFAULT_TIMEOUT_S = "900"


def add_arguments(parser: CommandParser) -> None:
    add_scenario_arguments(parser)
    parser.takes_command = True
    parser.brief = (
        {
            **STEP,
            "dry run": (
                "--sweep", "--out", "--flame", "--allow-writes", "--rank", "--input", "--arg", "--assume", "--timeout",
            ),
            "answers": ("--json", "--explain", "--scenario"),
        },
        (
            "vramwise dry-run gpt2 --task train --micro-batch-size 2",
            "vramwise dry-run --gpu 4090 -- python train.py --lr 1e-4",
            "vramwise dry-run mine.net:Net --input x=float32[8,3,224,224]",
        ),
    )  # fmt: skip
    parser.epilog = "a script is taken as it is: vramwise dry-run --gpu 4090 -- python train.py --lr 1e-4"
    runs = parser.add_argument_group("dry run")
    runs.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")
    runs.add_argument(
        "--sweep", nargs="+", action="extend", metavar="KEY=VALUES",
        help="a run for each size, and the line through the peaks: micro_batch_size=1,2,4 or a..b",
    )  # fmt: skip
    runs.add_argument("--out", metavar="FILE", help="write a memory snapshot (FILE.pickle) for PyTorch's memory viewer")
    runs.add_argument("--flame", metavar="FILE", help="write the peak by call stack: FILE.svg, else folded lines")
    runs.add_argument("--explain", nargs="?", const="", metavar="PATH", help="every term with who allocated it")
    runs.add_argument("--allow-writes", action="store_true", help="let a script write its files where it wants to")
    runs.add_argument("--rank", metavar="R", help="which rank of a script that a launcher starts (default: 0)")
    runs.add_argument(
        "--input", nargs="+", action="extend", default=[], metavar="NAME=DTYPE[SHAPE]",
        help="what a module of your own (MODULE:CLASS) is fed: x=float32[8,3,224,224]",
    )  # fmt: skip
    runs.add_argument(
        "--arg", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="an argument of its constructor"
    )
    runs.add_argument(
        "--assume", nargs="+", action="extend", default=[], metavar="KEY=VALUE",
        help="a value that code decides by: train.py:31=0.5, nonzero=50%%, item=7",
    )  # fmt: skip
    runs.add_argument("--vllm", metavar="FOLDER", help="for -- vllm serve: a folder with vLLM's unpacked wheel")
    runs.add_argument("--timeout", metavar="SECONDS", default=DEFAULT_TIMEOUT_S, help="of all runs together")


def run(args: argparse.Namespace) -> int:
    """Print the result; 0 when it fits (or no GPU was named), 3 when it does not.

    Raises UsageError for options that exclude one another.
    """
    timeout_s = _seconds(args.timeout)
    if args.engine_command:
        from vramwise.dryrun.vllm_serve import server_arguments

        server = server_arguments(args.engine_command)
        return _script(args, timeout_s) if server is None else _server(args, server, timeout_s)
    if args.vllm is not None:
        raise UsageError("--vllm is for a server: dry-run --gpu CARD --vllm FOLDER -- vllm serve MODEL …")
    if args.rank is None and (args.input or is_own_module(args.model)):
        return _own_module(args, timeout_s)
    if args.allow_writes or args.rank is not None or args.assume or args.arg:
        name = (
            "--allow-writes" if args.allow_writes else "--rank" if args.rank else "--assume" if args.assume else "--arg"
        )
        raise UsageError(f"{name} is for a script: dry-run {name} … -- python FILE")
    take_scenario_file(args)
    scenario = scenario_from_flags(args)
    if args.sweep:
        if args.out or args.flame or args.explain is not None:
            raise UsageError("--sweep prints the peaks of many runs: leave out --out, --flame and --explain")
        return _sweep(args, scenario, timeout_s)
    from vramwise.dryrun.scenario import dry_runs

    files = {"snapshot": _place(args.out), "flame": _place(args.flame)}
    ((result, _),) = dry_runs([scenario], timeout_s=timeout_s, **files)
    return show_result(args, result)


def _server(args: argparse.Namespace, server: list[str], timeout_s: float) -> int:
    from vramwise.dryrun.vllm_serve import dry_run_of_vllm

    alone = {"--sweep": args.sweep, "--out": args.out, "--flame": args.flame, "--rank": args.rank,
             "--assume": args.assume, "--arg": args.arg, "--input": args.input, "--scenario": args.scenario,
             "--explain": args.explain is not None, "--allow-writes": args.allow_writes}  # fmt: skip
    unused = [flag(key) for key in given_keys(args) if key not in _OF_SERVERS]
    for name in (*unused, *(name for name, value in alone.items() if value)):
        raise UsageError(
            f"{name} is not for a server, whose own arguments describe it: dry-run --gpu CARD -- vllm serve …"
        )
    found = dry_run_of_vllm(server, scenario_from_flags(args), timeout_s, args.vllm)
    if args.json:
        json.dump(found.to_dict(), sys.stdout)
        print()
    else:
        from vramwise.cli.screens.dry_run_serve import start_screen
        from vramwise.cli.screens.paint import show

        show(start_screen(found))
    verdict = found.estimated.verdict
    return DOES_NOT_FIT if verdict is not None and not verdict.fits else 0


def _script(args: argparse.Namespace, timeout_s: float) -> int:
    from vramwise.dryrun.command import dry_run_of_command

    unused = [key for key in given_keys(args) if key not in _OF_SCRIPTS]
    if unused or args.sweep or args.scenario is not None:
        name = flag(unused[0]) if unused else "--sweep" if args.sweep else "--scenario"
        raise UsageError(f"{name} describes a model: a script brings its own settings, only the card is asked for")
    if args.input or args.arg:
        raise UsageError(
            "--input and --arg are for a module of your own: dry-run MODULE:CLASS --input x=float32[8,512]"
        )
    return show_result(args, dry_run_of_command(args.engine_command, _own_run(args, timeout_s), _rank(args.rank)))


def _own_module(args: argparse.Namespace, timeout_s: float) -> int:
    from vramwise.dryrun.command import dry_run_of_module
    from vramwise.dryrun.own_module import read_arguments, read_inputs, read_target

    target, inputs, arguments = read_target(args.model), read_inputs(args.input), read_arguments(args.arg)
    scenario = scenario_from_flags(args)
    unused = [key for key in given_keys(args) if key not in _OF_MODULES]
    if unused or args.sweep or args.scenario is not None:
        name = flag(unused[0]) if unused else "--sweep" if args.sweep else "--scenario"
        raise UsageError(f"{name} is not for a module of your own, which dry-run knows no more of than its inputs")
    if scenario.task not in ("train", "generate", "load"):
        raise UsageError(f"dry-run runs --task train, generate (one forward pass), load, not {scenario.task}")
    if not inputs and scenario.task != "load":
        raise UsageError("a module of your own needs what to feed it: --input x=float32[8,3,224,224]")
    from vramwise.dryrun.scenario import settings_of_module

    settings = settings_of_module(scenario, inputs)
    run = _own_run(args, timeout_s)
    return show_result(args, dry_run_of_module(target, scenario.task, settings, arguments, inputs, run))


def _own_run(args: argparse.Namespace, timeout_s: float) -> Run:
    from vramwise.dryrun.assumed import read_assumptions
    from vramwise.dryrun.command import Run
    from vramwise.units import parse_bytes

    total = None if args.gpu_total_bytes is None else parse_bytes(args.gpu_total_bytes)
    return Run(
        args.gpu, total, timeout_s, _place(args.out), _place(args.flame), args.allow_writes,
        read_assumptions(args.assume),
    )  # fmt: skip


def show_result(args: argparse.Namespace, result: Result) -> int:
    """The result as it was asked for, and the exit code."""
    if args.json:
        json.dump(result.to_dict(), sys.stdout)
        print()
    else:
        from vramwise.cli.screens.paint import show

        if args.explain is not None:
            from vramwise.cli.screens.explain import explain_screen

            show(explain_screen(result, args.explain))
        else:
            from vramwise.cli.screens.dry_run import dry_run_screen

            show(dry_run_screen(result))
    return DOES_NOT_FIT if result.verdict is not None and not result.verdict.fits else 0


def is_own_module(model: str | None) -> bool:
    if model is None or ":" not in model:
        return False
    from vramwise.dryrun.own_module import names_a_module

    return names_a_module(model)


def _place(given: str | None) -> str | None:
    """A file's whole path; raises UsageError where its folder is not there."""
    if given is None:
        return None
    path = Path(given).resolve()
    if not path.parent.is_dir():
        raise UsageError(f"{clipped(given)}: the folder is not there")
    return str(path)


def _seconds(text: str) -> float:
    if not text.isdecimal() or len(text) > 6 or int(text) < 1:
        raise UsageError(f'--timeout: expected whole seconds from 1 on, got "{clipped(text, 20)}"')
    return float(text)


def _rank(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 6:
        raise UsageError(f'--rank: expected a whole number from 0 on, got "{clipped(text, 20)}"')
    return int(text)


def _sweep(args: argparse.Namespace, scenario: Scenario, timeout_s: float) -> int:
    from vramwise.dryrun.scenario import dry_runs
    from vramwise.measure.sweep import fitted, grid, parse_sweep, size_of

    values = parse_sweep(args.sweep, scenario.task)
    sizes = grid(values)
    scenarios = [scenario.replace(**{scenario.task: scenario.settings.replace(**one)}) for one in sizes]
    rows: list[tuple[dict[str, int], Result, Result | None]] = []
    stopped = ""
    try:
        for one, (result, estimated) in zip(sizes, dry_runs(scenarios, timeout_s=timeout_s), strict=False):
            rows.append((one, result, estimated))
    except VramwiseError as problem:
        if not rows:
            raise
        stopped = str(problem)
    points, name = [], ""
    for one, result, _ in rows:
        table: Mapping[str, object] = result.scenario[scenario.task]
        name, size = size_of(scenario.task, list(values), {**table, **one})
        points.append((size, int(result.quantities["peak_allocated"].expected)))
    line = fitted(name, points)
    if args.json:
        _print_sweep(rows, line, stopped)
    else:
        from vramwise.cli.screens.dry_run import dry_sweep_screen
        from vramwise.cli.screens.paint import show

        show(dry_sweep_screen(rows, line, len(sizes), stopped))
    judged = [result.verdict.fits for _, result, _ in rows if result.verdict is not None]
    return 1 if stopped else DOES_NOT_FIT if judged and not any(judged) else 0


def _print_sweep(
    rows: Sequence[tuple[dict[str, int], Result, Result | None]], line: FittedLine | None, stopped: str
) -> None:
    fit = line and {
        "x": line.x, "fixed_bytes": line.fixed, "bytes_per_x": line.slope, "r_squared": line.r_squared,
        "residual_bytes": list(line.residuals),
    }  # fmt: skip
    runs = [
        {"sizes": one, "result": result.to_dict(), "estimated": estimated.to_dict() if estimated else None}
        for one, result, estimated in rows
    ]
    json.dump({"runs": runs, "fit": fit, "stopped": stopped or None}, sys.stdout)
    print()
