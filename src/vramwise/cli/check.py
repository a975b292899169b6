"""`vramwise check -- COMMAND…` or `check FILE`: one line and an exit code, before a job starts."""

from __future__ import annotations

import argparse
import json
import sys

from vramwise.cli.file_arguments import add_file_arguments, launches_of_files
from vramwise.cli.parsing import CommandParser
from vramwise.cli.scenario_flags import add_scenario_arguments, scenario_from_flags, take_scenario_file
from vramwise.errors import UsageError, clipped, printable

HELP = "whether a job fits, in one line: for submit scripts, prologs, CI and pre-commit"
DOES_NOT_FIT = 3


def add_arguments(parser: CommandParser) -> None:
    add_scenario_arguments(parser)
    add_file_arguments(parser)
    parser.takes_command = True
    parser.epilog = (
        "vramwise check --gpu h100 -- vllm serve MODEL …  or  vramwise check --gpu h100 job.sbatch; without --gpu it "
        "is this machine's card. Exit code 0: fits, 3: does not fit, 2: not understood, or no card to hold it against"
    )
    parser.add_argument("--json", action="store_true", help="print word, probability, bytes and change as JSON")
    parser.add_argument(
        "--strict", action="store_true", help="exit code 3 where it is tight, 2 where a flag of the command is unknown"
    )


def run(args: argparse.Namespace) -> int:
    """Print the line; 0 where it fits, 3 where it does not. Raises UsageError for what is not understood."""
    from vramwise.checking.job import judged, worst

    launches = launches_of_files(args)
    checks = []
    for one in launches:
        args.launch = one.launch
        checks.append(judged(scenario_from_flags(args), one.name if len(launches) > 1 else ""))
    if not launches:
        args.launch = None
        take_scenario_file(args)
        _refuse_nothing(args)
        checks.append(judged(scenario_from_flags(args)))
    found = worst(checks)
    unread = list(dict.fromkeys(note for one in checks for note in one.unread))
    if unread and args.strict:
        raise UsageError(f"not understood in whole: {unread[0]}")
    for note in unread:
        print(f"vramwise: note: {printable(note)}", file=sys.stderr)
    print(json.dumps(found.to_dict()) if args.json else printable(found.line()))
    return DOES_NOT_FIT if not found.fits or (args.strict and found.word == "tight") else 0


def _refuse_nothing(args: argparse.Namespace) -> None:
    """Raises UsageError where there is neither a command nor a file nor a whole scenario."""
    if args.engine_command or args.scenario is not None or args.task is not None or args.deepspeed is not None:
        return
    if args.model is None:
        raise UsageError("nothing to check: give a FILE, or a command after --")
    raise UsageError(f'"{clipped(args.model)}" is no file here: give a FILE, a command after --, or MODEL with --task')
