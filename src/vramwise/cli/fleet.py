"""`vramwise fleet --prometheus URL`: what the jobs of a cluster made of their GPU-hours."""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from vramwise.errors import UsageError, clipped
from vramwise.files import write_file

if TYPE_CHECKING:
    from vramwise.fleet.answer import FleetAnswer

HELP = "which jobs of a cluster waste how many GPU-hours and why, from Prometheus or VictoriaMetrics"
LONGEST_S = 400 * 86_400
MOST_STEPS = 100_000
TOKEN_VARIABLE = "VRAMWISE_PROMETHEUS_TOKEN"
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the command."""
    parser.add_argument("table", nargs="?", metavar="JOBS.parquet", help="a table that -o wrote, instead of a server")
    parser.add_argument(
        "--prometheus", metavar="URL", help="Prometheus or VictoriaMetrics, such as http://localhost:9090"
    )
    parser.add_argument("--since", type=_duration, default="28d", metavar="TIME", help="how far back (%(default)s)")
    parser.add_argument("--until", type=_moment, metavar="WHEN", help="the end, such as 2026-11-01 (now)")
    parser.add_argument(
        "--step", type=_duration, metavar="TIME", help="resolution of the server's sums (1m; 5m beyond two days)"
    )
    parser.add_argument(
        "--timeout", type=_duration, default="60s", metavar="TIME", help="for one question (%(default)s)"
    )
    parser.add_argument(
        "--job-label", action="append", default=[], metavar="LABEL",
        help="the label that names a job; several together (hpc_job, job_id, or namespace and pod with its workload)",
    )  # fmt: skip
    parser.add_argument("--command-label", metavar="LABEL", help="the label that holds a job's command line")
    parser.add_argument(
        "--specs", nargs="+", default=[], metavar="PATH", help="manifests and batch scripts by the names of their jobs"
    )
    parser.add_argument(
        "--tokens-metric",
        action="append",
        default=[],
        metavar="NAME",
        help="a counter of tokens beside vLLM's, SGLang's",
    )
    parser.add_argument(
        "--steps-metric", action="append", default=[], metavar="NAME", help="a counter of training steps"
    )
    parser.add_argument("--top", type=int, default=15, metavar="N", help="jobs to list (%(default)s)")
    parser.add_argument("-o", "--output", metavar="JOBS.parquet", help="keep the table, a row a job")
    parser.add_argument("--csv", metavar="FILE.csv", help="also write the table as CSV")
    parser.add_argument("--html", metavar="FILE.html", help="also write a report with plots")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(args: argparse.Namespace) -> int:
    """Ask, write what is wanted, print. Raises SourceError where nobody answers, UsageError for a wrong question."""
    from vramwise.fleet.table import as_csv, check_output, write_parquet

    if args.top < 1:
        raise UsageError(f"--top: expected a whole number ≥ 1, got {args.top}")
    if (args.prometheus is None) == (args.table is None):
        raise UsageError("give --prometheus URL, or a table that an earlier run kept with -o")
    for flag, path, ending in (
        ("--output", args.output, ".parquet"), ("--csv", args.csv, ".csv"), ("--html", args.html, ".html"),
    ):  # fmt: skip
        check_output(flag, path, ending)
    answer = _kept(args) if args.table is not None else _asked(args)
    if args.output is not None:
        write_parquet(args.output, answer.jobs, answer.about)
    if args.csv is not None:
        write_file(args.csv, as_csv(answer.jobs))
    if args.html is not None:
        from vramwise.fleet.report import report

        write_file(args.html, report(answer, top=args.top))
    if args.json:
        print(json.dumps(answer.to_dict(), allow_nan=False))
        return 0
    from vramwise.cli.screens.fleet import fleet_lines
    from vramwise.cli.screens.paint import show

    show(fleet_lines(answer, top=args.top))
    return 0


def _kept(args: argparse.Namespace) -> FleetAnswer:
    from vramwise.fleet.answer import in_order
    from vramwise.fleet.table import read_parquet

    return in_order(*read_parquet(args.table))


def _asked(args: argparse.Namespace) -> FleetAnswer:
    from vramwise.cli.screens.progress import counted
    from vramwise.fleet.answer import ask_fleet
    from vramwise.fleet.prometheus import server_at
    from vramwise.fleet.smaller import specs_in
    from vramwise.fleet.windows import STEPS, TOKENS, Asked

    step = args.step or (300 if args.since > 2 * 86_400 else 60)
    if args.since < step:
        raise UsageError(f"--since: expected at least one step of {step} s, got {args.since} s")
    if args.since // step > MOST_STEPS:
        raise UsageError(f"--step: {args.since // step:,} steps are more than {MOST_STEPS:,}; choose a longer one")
    until = int(time.time() if args.until is None else args.until) // step * step
    asked = Asked(
        until_s=until, since_s=args.since // step * step, step_s=step, job_labels=tuple(args.job_label),
        command_label=args.command_label, tokens=(*TOKENS, *args.tokens_metric), steps=(*STEPS, *args.steps_metric),
    )  # fmt: skip
    server = server_at(args.prometheus, float(args.timeout), os.environ.get(TOKEN_VARIABLE) or None)
    windows = partial(counted, label="asking", unit="windows")
    return ask_fleet(server, asked, specs_in(args.specs), windows, partial(counted, label="looking at", unit="jobs"))


def _duration(text: str) -> int:
    found = re.fullmatch(r"(\d{1,9})([smhdw])", text)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 1 <= seconds <= LONGEST_S:
        raise argparse.ArgumentTypeError(
            f'expected a time such as 28d, 12h or 90m (at most 400d), got "{clipped(text)}"'
        )
    return seconds


def _moment(text: str) -> int:
    try:
        when = datetime.fromisoformat(text)
        return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError, OSError):
        said = f'expected a time such as 2026-11-01 or 2026-11-01T12:00 (UTC), got "{clipped(text)}"'
        raise argparse.ArgumentTypeError(said) from None
