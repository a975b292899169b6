"""FILE… of `vramwise estimate`: other tools' files, alone, several together, or beside a MODEL that replaces theirs.

`--export TOOL [-o FILE]` of `vramwise estimate` and `plan`: the scenario in the words of the tool that runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from vramwise.cli.language import complain
from vramwise.cli.parsing import CommandParser
from vramwise.errors import DOES_NOT_FIT, UsageError, VramwiseError, clipped
from vramwise.files import shown_path, write_file
from vramwise.scenario import Scenario, read_table_file
from vramwise.units import UNIT_BYTES, format_bytes

if TYPE_CHECKING:
    from vramwise.interop.export.draft import File
    from vramwise.interop.files.launches import FileLaunch
    from vramwise.interop.launch import Launch
    from vramwise.result import Result

_LISTED = 12
_OTHER_TOOLS_KEYS = frozenset({
    "apiVersion", "services", "task", "run", "models", "servingEngineSpec", "applications", "llm_configs",
    "model_loading_config", "base_model", "model_name_or_path",
})  # fmt: skip
"""Keys by which a table that states a `model_type` can be another tool's (`interop.files.kinds`)."""

_TOLD = ("checkpointing", "loss", "optimizer", "attention", "precision", "param_dtype", "quantization", "lora_dtype")
"""Settings whose own values a tool is told by."""


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
        if stray in UNIT_BYTES:
            raise UsageError(f'unexpected argument "{stray}": a size is one word, such as 2{stray}')
        quoted = f'a name with blanks stands in quotes, as "{clipped(" ".join(words))}"'
        raise UsageError(f'unexpected argument "{clipped(stray)}": no such file; {quoted}')
    first = args.model if args.model is not None else args.scenario
    is_tools = isinstance(first, str) and not is_models_config(first) and _is_tools(first)
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


def is_models_config(path: str) -> bool:
    """Whether a file is a model's config.json for certain, so that nothing need know what tools' files look like."""
    if os.path.basename(path) != "config.json":
        return False
    try:
        table = read_table_file(path)
    except (OSError, VramwiseError):
        return False
    return "model_type" in table and not _OTHER_TOOLS_KEYS & table.keys()


def _is_tools(path: str) -> bool:
    """Whether a file is another tool's. Raises UsageError for a table that is nobody's."""
    from vramwise.interop.files.kinds import is_nobodys_table, is_tools_file

    if is_tools_file(path):
        return True
    if is_nobodys_table(path):
        from vramwise.interop.files.launches import refused

        raise refused(path)
    return False


def each_answered(
    args: argparse.Namespace, launches: Sequence[FileLaunch], answer: Callable[[argparse.Namespace, str], int]
) -> int:
    """An answer for each program that a file starts; 3 where one of them does not fit.

    One without an answer, as of a model that is not known, is a line of its own, and its code is the command's.
    """
    codes, told = [0], set()
    for one in launches:
        args.launch = one.launch
        try:
            codes.append(answer(args, one.name))
        except VramwiseError as error:
            codes.append(error.exit_code)
            if str(error) not in told:
                complain(f"{clipped(one.name)}: {error}" if one.name else str(error))
            told.add(str(error))
    return max(codes)


def launch_of_files(args: argparse.Namespace) -> Launch | None:
    """The one program that the files say, None where MODEL is none of a tool's. Raises UsageError for several."""
    launches = launches_of_files(args)
    if len(launches) > 1:
        names = ", ".join(clipped(one.name) for one in launches[:_LISTED])
        raise UsageError(f"the file starts {len(launches)} programs: --service NAME says which: {names}")
    return launches[0].launch if launches else None


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


def print_export(args: argparse.Namespace, scenario: Scenario, planned: Result | None = None) -> int:
    """Print or write the export; 3 where the scenario does not fit. Raises UsageError or SourceError.

    `planned`: the answer with which a plan offered it, for a line where the tool's own defaults make another of it.
    """
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
    if planned is not None and planned.needed != result.needed:
        print(_by_its_defaults(found.tool, result, planned), file=sys.stderr)
    verdict = result.verdict
    if verdict is None or verdict.fits or result.capacity is None:
        return 0
    need, room = format_bytes(int(result.needed.expected)), format_bytes(result.capacity.usable_bytes)
    print(f"does not fit: needs {need}, room {room}", file=sys.stderr)
    return DOES_NOT_FIT


def _by_its_defaults(tool: str, result: Result, planned: Result) -> str:
    """What the tool does where an option of a plan states nothing, and what either needs."""
    here, there = (one.scenario.get(str(one.scenario.get("task"))) for one in (result, planned))
    own, asked = (table if isinstance(table, Mapping) else {} for table in (here, there))
    other = ", ".join(f"{key} {own[key]}" for key in _TOLD if key in own and own[key] != asked.get(key))
    needs, offered = (format_bytes(int(one.needed.expected)) for one in (result, planned))
    how = f" ({other})" if other else ""
    return f"defaults: what the option leaves open is {tool}'s own{how}: it needs {needs}, the option {offered}"
