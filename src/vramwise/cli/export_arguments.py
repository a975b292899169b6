"""`--export TOOL [-o FILE]` of `vramwise estimate` and `plan`: the scenario in the words of the tool that runs it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from vramwise.cli.parsing import CommandParser
from vramwise.errors import DOES_NOT_FIT, UsageError
from vramwise.files import shown_path, write_file
from vramwise.scenario import Scenario
from vramwise.units import format_bytes

if TYPE_CHECKING:
    from vramwise.interop.export.draft import File


def add_export_arguments(parser: CommandParser) -> None:
    """Add --export and -o."""
    parser.add_argument(
        "--export", metavar="TOOL",
        help="instead of the answer, the scenario as the command or file of TOOL: vllm, sglang, llama-server, k8s, "
        "accelerate, deepspeed, axolotl, llamafactory, torchtune, trl, aisimulate; what it cannot say goes to stderr",
    )  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", help="with --export: write it there (a new file)")


def take_export(args: argparse.Namespace) -> None:
    """What `--export` settles before a scenario is read: the task, where none is given.

    Raises UsageError for options that go with no `--export`, or not with several scenarios.
    """
    if args.export is None:
        if args.output is not None:
            raise UsageError("-o: writes what --export TOOL makes: add it, or leave out -o")
        return
    for name in ("explain", "sweep", "style", "image"):
        if getattr(args, name) is not None:
            raise UsageError(f"--export writes one scenario: leave out --{name}")
    from vramwise.interop.export.tools import tool_named

    tool = tool_named(args.export)
    refuse_a_file_that_is_there(args)
    if args.task is None and not (args.scenario or args.engine_command or args.deepspeed or args.launch):
        args.task = tool.task


def refuse_a_file_that_is_there(args: argparse.Namespace) -> None:
    """Raises UsageError where -o names a file that exists."""
    if args.output is not None and os.path.lexists(args.output) and os.path.isfile(args.output):
        raise UsageError(f"-o {shown_path(args.output)}: is there already: name another file, or remove it")


def print_text(args: argparse.Namespace, file: File) -> int:
    """Print or write a file that is no scenario of its own."""
    if args.output is None:
        print(file.text, end="")
    else:
        write_file(args.output, file.text)
        print(f"{shown_path(args.output)}: {file.what}", file=sys.stderr)
    return 0


def print_export(args: argparse.Namespace, scenario: Scenario) -> int:
    """Print or write the export; 3 where the scenario does not fit. Raises UsageError or SourceError."""
    from vramwise.interop.export import export_answer

    found, result = export_answer(scenario, args.export, args.output)
    if args.output is not None:
        for file in found.files:
            if file is not found.files[0] and os.path.exists(file.path):
                raise UsageError(
                    f"-o {shown_path(args.output)}: {shown_path(file.path)}, {file.what}, is there already"
                )
        write_file(args.output, found.text)
        print(f"{shown_path(args.output)}: {found.files[0].what if found.files else 'the command'}", file=sys.stderr)
        for file in found.files[1:]:
            write_file(file.path, file.text)
            print(f"{shown_path(file.path)}: {file.what}", file=sys.stderr)
    if args.json:
        json.dump({**result.to_dict(suggestions=result.verdict is not None), "export": found.to_dict()}, sys.stdout)
        print()
    elif args.output is None:
        print(found.text, end="")
        for file in found.files[1:]:
            print(f"\n# {file.path}: {file.what}\n{file.text}", end="")
    if found.files:
        print(f"run: {found.command}", file=sys.stderr)
    for line in found.not_expressed:
        print(f"not expressed: {line}", file=sys.stderr)
    verdict = result.verdict
    if verdict is None or verdict.fits or result.capacity is None:
        return 0
    need, room = format_bytes(int(result.needed.expected)), format_bytes(result.capacity.usable_bytes)
    print(f"does not fit: needs {need}, room {room}", file=sys.stderr)
    return DOES_NOT_FIT
