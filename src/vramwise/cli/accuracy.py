"""`vramwise accuracy`: measured cases beside their estimates, summed up as a table of errors."""

from __future__ import annotations

import argparse
import json

from vramwise.accuracy.comparison import Estimate
from vramwise.accuracy.report import Report, judge
from vramwise.accuracy.table import GROUPS
from vramwise.accuracy.text import lines
from vramwise.cli.screens.progress import counted
from vramwise.errors import printable

HELP = "hold estimates against measured cases"
NARROWEST, WIDEST = 80, 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="FILE_OR_DIR",
        help="measured cases (JSON Lines), a folder of them, or plugin:NAME",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, fractions in place of percent")
    parser.add_argument(
        "--worst", type=_count, default=0, metavar="N", help="also list the N largest errors, case by case"
    )
    parser.add_argument("--by", choices=tuple(GROUPS), default="engine", help="what rows group (%(default)s)")
    parser.add_argument(
        "--weigh",
        choices=("case", "source"),
        default="case",
        help="source: every source counts once, a figure is the median of the sources' own (%(default)s)",
    )


def run(args: argparse.Namespace, estimate: Estimate | None = None) -> int:
    """Print the table of errors; 0 once every line was answered, whatever the errors are."""
    if estimate is None:
        from vramwise.estimation import estimate as answered  # heavy: only once the arguments are known to be good

        estimate = answered
    report = judge(
        args.paths,
        estimate,
        by=args.by,
        weigh_by_source=args.weigh == "source",
        worst=args.worst,
        watched=lambda cases: counted(cases, "estimating", "cases"),
    )
    if args.json:
        print(json.dumps(report.to_dict(), indent=1, allow_nan=False))
    else:
        print_report(report, args.by)
    return 0


def print_report(report: Report, by: str) -> None:
    import shutil

    width = min(max(shutil.get_terminal_size((120, 40)).columns, NARROWEST), WIDEST)
    print("\n".join(map(printable, lines(report, width, by))))


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise argparse.ArgumentTypeError(f'expected a whole number ≥ 0, got "{text}"')
    return int(text)
