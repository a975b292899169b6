"""FILE… of `vramwise estimate`: other tools' files, alone, several together, or beside a MODEL that replaces theirs."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from vramwise.cli.parsing import CommandParser
from vramwise.errors import UsageError, clipped

if TYPE_CHECKING:
    from vramwise.interop.files.launches import FileLaunch
    from vramwise.interop.launch import Launch

_LISTED = 12


def add_file_arguments(parser: CommandParser) -> None:
    """Add FILE… and --service to a parser that has MODEL already."""
    parser.takes_files = True
    parser.add_argument(
        "files", nargs="*", metavar="FILE",
        help="tools' files, recognized by what is in them: configurations of axolotl, LLaMA-Factory, ms-swift, "
        "torchtune, torchtitan, litgpt, llm-foundry, TRL, verl, NeMo-RL, AgileRL, accelerate, DeepSpeed; notebooks, "
        "scripts, Slurm jobs, a command line in a text, docker-compose.yml, Kubernetes and Ray manifests, Modelfiles",
    )  # fmt: skip
    parser.add_argument("--service", metavar="NAME", help="the one of a file's services or programs that is meant")


def launches_of_files(args: argparse.Namespace) -> list[FileLaunch]:
    """What the files say, by the name of each program; none where MODEL is a model or a scenario's own file.

    What is no file of a tool stays in `args.model`. Raises UsageError or SourceError.
    """
    words = [word for word in (args.model, args.scenario, *args.files) if isinstance(word, str)]
    if not args.files and not any(os.path.isfile(word) for word in words):
        if args.service is not None:
            raise UsageError("--service: chooses among the programs of a FILE, such as docker-compose.yml")
        return []
    stray = next((word for word in args.files if not os.path.exists(word) and not set("./\\") & set(word)), None)
    if stray is not None:
        quoted = f'a name with blanks stands in quotes, as "{clipped(" ".join(words))}"'
        raise UsageError(f'unexpected argument "{clipped(stray)}": no such file; {quoted}')
    from vramwise.interop.files.kinds import is_nobodys_table, is_tools_file

    first = args.model if args.model is not None else args.scenario
    is_tools = isinstance(first, str) and is_tools_file(first)
    if isinstance(first, str) and not is_tools and is_nobodys_table(first):
        from vramwise.interop.files.launches import refused

        raise refused(first)
    files = [*([first] if is_tools and isinstance(first, str) else []), *args.files]
    if not files:
        if args.service is not None:
            raise UsageError(f"--service: {clipped(str(first))} starts no programs")
        return []
    if args.engine_command:
        raise UsageError("files and a command line both describe the scenario: leave out one")
    if is_tools:
        args.model = args.scenario = None
    elif args.scenario is not None:
        raise UsageError("--scenario and other files both describe the scenario: leave out one")
    from vramwise.interop.files.launches import read_files

    return read_files(files, args.model, args.service)


def launch_of_files(args: argparse.Namespace) -> Launch | None:
    """The one program that the files say, None where MODEL is none of a tool's. Raises UsageError for several."""
    launches = launches_of_files(args)
    if len(launches) > 1:
        names = ", ".join(clipped(one.name) for one in launches[:_LISTED])
        raise UsageError(f"the file starts {len(launches)} programs: --service NAME says which: {names}")
    return launches[0].launch if launches else None
