"""`vramwise check -- COMMAND…` or `check FILE`: one line and an exit code, before a job starts."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from vramwise.cli.brief_help import JOB
from vramwise.cli.file_arguments import add_file_arguments, launches_of_files
from vramwise.cli.language import said
from vramwise.cli.parsing import CommandParser
from vramwise.cli.scenario_flags import add_scenario_arguments, scenario_from_flags, take_scenario_file
from vramwise.errors import DOES_NOT_FIT, UsageError, clipped, printable
from vramwise.records import replace

if TYPE_CHECKING:
    from vramwise.checking.job import Check
    from vramwise.interop.files.launches import FileLaunch

HELP = "whether a job fits, in one line and an exit code"


def add_arguments(parser: CommandParser) -> None:
    add_scenario_arguments(parser)
    add_file_arguments(parser)
    parser.takes_command = True
    parser.brief = (
        {**JOB, "answers": ("--json", "--strict", "--scenario")},
        (
            "vramwise check --gpu h100 -- vllm serve MODEL …   0: fits, 3: does not fit,",
            "vramwise check --gpu a100-80gb job.sbatch         2: not understood",
            "vramwise check train.yaml                         on the card of this machine",
        ),
    )
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
    from vramwise.checking.job import worst

    checks = _checks(args)
    found = worst(checks)
    unread = list(dict.fromkeys(note for one in checks for note in one.unread))
    if unread and args.strict:
        raise UsageError(f"not understood in whole: {unread[0]}")
    for note in dict.fromkeys([*unread, *(note for one in checks for note in one.doubts)]):
        print(f"vramwise: {said(f'note: {printable(note)}')}", file=sys.stderr)
    print(json.dumps(found.to_dict()) if args.json else said(printable(found.line())))
    return DOES_NOT_FIT if not found.fits or (args.strict and found.word == "tight") else 0


def _checks(args: argparse.Namespace) -> list[Check]:
    """The check of every program; files that do not belong together are looked at one by one."""
    from vramwise.checking.job import judged

    files = [word for word in (args.model, *args.files) if isinstance(word, str)]
    try:
        launches = launches_of_files(args)
    except UsageError:
        if len(files) < 2:
            raise
        return [one for file in files for one in _alone(args, file)]
    if launches:
        return [_launched(args, one, several=len(launches) > 1) for one in launches]
    args.launch = None
    take_scenario_file(args)
    _refuse_nothing(args)
    return [judged(scenario_from_flags(args))]


def _alone(args: argparse.Namespace, file: str) -> list[Check]:
    """The checks of one of several files, each with its name."""
    found = _checks(argparse.Namespace(**{**vars(args), "model": file, "files": []}))
    return [replace(one, name=" ".join(filter(None, (os.path.basename(file), one.name)))) for one in found]


def _launched(args: argparse.Namespace, one: FileLaunch, *, several: bool) -> Check:
    from vramwise.checking.job import judged

    args.launch = one.launch
    return judged(scenario_from_flags(args), one.name if several else "")


def _refuse_nothing(args: argparse.Namespace) -> None:
    """Raises UsageError where there is neither a command nor a file nor a whole scenario."""
    if args.engine_command or args.scenario is not None or args.task is not None or args.deepspeed is not None:
        return
    if args.model is None:
        raise UsageError("nothing to check: give a FILE, or a command after --")
    why = "starts no program that is known here" if os.path.exists(args.model) else "is no file here"
    raise UsageError(f'"{clipped(args.model)}" {why}: give a FILE, a command after --, or MODEL with --task')
