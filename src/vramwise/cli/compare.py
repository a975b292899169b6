"""`vramwise compare LOGFILE`: what an engine printed at its start beside the estimate of the same scenario.

`vramwise compare A B`: two results (of estimate, dry-run or measure, as `--json` prints them), or the folders of two
jobs (of profile -o), term by term.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from vramwise.cli import flag
from vramwise.cli.scenario_flags import read_flag
from vramwise.cli.site_flags import add_site_arguments, kept, kept_lines
from vramwise.errors import ScenarioError, UsageError, clipped
from vramwise.files import read_at_most, shown_path
from vramwise.units import MIB

if TYPE_CHECKING:
    from vramwise.interop.logs import Comparison
    from vramwise.result import Result

HELP = "hold an estimate against an engine's own start-up log"
_LARGEST_RESULT = 64 * MIB
_TOP = ("model", "gpu", "gpu_total_bytes", "num_gpus")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "log", metavar="LOGFILE", help="start-up log of vLLM, SGLang, llama.cpp or ik_llama.cpp; or result A as JSON"
    )
    parser.add_argument(
        "other",
        metavar="B",
        nargs="?",
        help="result B: what estimate, dry-run or measure --json wrote; or a job's folder, A too",
    )
    parser.add_argument("--model", metavar="MODEL", help="the model, where the log does not name it")
    parser.add_argument("--gpu", metavar="TEXT", help="the GPU, where the log does not say it")
    parser.add_argument("--gpu-total-bytes", metavar="SIZE", help="exact memory of one GPU")
    parser.add_argument("--num-gpus", metavar="N", help="GPUs in all")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[],
        help="a key of the `serve` table that the log leaves open (max_num_seqs=256); may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--save-case", metavar="FILE.jsonl", help="add the log to a file of measured cases, the form of a contribution"
    )
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON and nothing else")
    add_site_arguments(parser, calibrates=True)


def run(args: argparse.Namespace) -> int:
    """Print the comparison; 0 whenever there is one."""
    if args.other is not None:
        return _two(args)
    from vramwise.interop.logs import compare_log

    comparison = compare_log(args.log, _overrides(args))
    learned = _learned(args, comparison) if args.calibrate else None
    saved = _saved(args.save_case, comparison) if args.save_case else ""
    if args.json:
        json.dump(comparison.to_dict() | ({} if learned is None else {"calibrated": learned}), sys.stdout)
        print()
        return 0
    from vramwise.cli.screens.compare import compare_screen
    from vramwise.cli.screens.paint import screen_width, show

    show([*compare_screen(comparison), *(() if learned is None else kept_lines(learned, screen_width()))])
    if saved:
        print(f"\n{saved}")
    return 0


def _saved(path: str, comparison: Comparison) -> str:
    """Add the log to a file of cases; the line that says so."""
    from vramwise.interop.logs.case import SOURCE, case_of_log
    from vramwise.measure.saving import save_case

    case = case_of_log(comparison)
    save_case(path, case)
    return f'{shown_path(path)}: added the case {case["id"]}; replace its source, "{SOURCE}"'


def _two(args: argparse.Namespace) -> int:
    unused = [key for key in _TOP if getattr(args, key) is not None]
    if unused or args.set or args.calibrate or args.save_case:
        name = (
            flag(unused[0]) if unused else "--set" if args.set else "--calibrate" if args.calibrate else "--save-case"
        )
        raise UsageError(f"{name} belongs to a log: two results say everything themselves")
    from vramwise.utilization.job.schema import is_job

    jobs = [is_job(path) for path in (args.log, args.other)]
    if all(jobs):
        return _two_jobs(args)
    if any(jobs):
        raise UsageError(
            f'"{clipped((args.log, args.other)[jobs.index(False)], 200)}": expected the folder of a job too'
        )
    return _two_results(args)


def _two_jobs(args: argparse.Namespace) -> int:
    from vramwise.utilization.job.folder import JobFolder
    from vramwise.utilization.job.two_jobs import two_jobs

    found = two_jobs(JobFolder(args.log), JobFolder(args.other))
    if args.json:
        json.dump(found, sys.stdout)
        print()
        return 0
    from vramwise.cli.screens.paint import show
    from vramwise.cli.screens.profile_job import two_jobs_lines

    show(two_jobs_lines(found))
    return 0


def _two_results(args: argparse.Namespace) -> int:
    from vramwise.cli.screens.compare import two_results_screen
    from vramwise.cli.screens.paint import show
    from vramwise.measure.two_results import two_results

    a, b = (_result_of(path) for path in (args.log, args.other))
    found = two_results(a, b)
    if args.json:
        json.dump(found.to_dict(), sys.stdout)
        print()
    else:
        show(two_results_screen(found, a, b))
    return 0


def _result_of(path: str) -> Result:
    """The result in a file; of `measure --json` what was measured. Raises SourceError, UsageError for another file."""
    from vramwise.result import Result

    text = read_at_most(path, _LARGEST_RESULT + 1)
    if len(text) > _LARGEST_RESULT:
        raise UsageError(f"{clipped(path)}: larger than any result (64 MiB)")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"{clipped(path)}: not JSON; write results with estimate, dry-run or measure --json") from None
    if isinstance(data, dict) and "measured" in data:
        data = data["measured"]
    return Result.from_dict(data)


def _learned(args: argparse.Namespace, comparison: Comparison) -> dict[str, object]:
    from vramwise.interop.logs.learning import run_of_log

    run, unlearned = run_of_log(comparison)
    return kept(args, [run], unlearned)


def _overrides(args: argparse.Namespace) -> dict[str, object]:
    from vramwise.scenario import Scenario
    from vramwise.scenario.definition import KINDS, ServeSettings

    given: dict[str, object] = {}
    for key in _TOP:
        value = getattr(args, key)
        if value is not None:
            given[key] = value if key == "model" else read_flag(key, KINDS[Scenario][key], value)
    serve: dict[str, object] = {}
    kinds = KINDS[ServeSettings]
    for pair in args.set:
        key, equals, text = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or key not in kinds:
            raise UsageError(f"--set {clipped(pair)}: expected KEY=VALUE with a key of the serve table")
        try:
            serve[key] = kinds[key].to_json(kinds[key].read(kinds[key].from_text(text), flag(key)))
        except ScenarioError as problem:
            raise UsageError(str(problem)) from None
    if serve:
        given["serve"] = serve
    return given
