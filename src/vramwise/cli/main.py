"""`vramwise COMMAND …`: finds the command, imports its module alone, and turns every error into one line."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from types import FrameType
from typing import NoReturn, Protocol, cast

from vramwise import __version__
from vramwise.cli.language import choose, complain, said
from vramwise.cli.parsing import HELP_FLAGS, CommandParser
from vramwise.errors import SourceError, UsageError, VramwiseError, clipped, nearest
from vramwise.files import shown_path

COMMANDS = {
    "estimate": "how much memory a model takes, and why",
    "check": "whether a job fits, in one line: for submit scripts and CI",
    "fit": "which models run and train on a card",
    "batch": "one scenario a line (JSON Lines) to one result a line",
    "compare": "hold an estimate against an engine's own start-up log",
    "accuracy": "hold estimates against measured cases",
    "plan": "what to change, or how many of which GPUs, so that it fits",
    "measure": "run a scenario on the GPU at hand, measured beside estimated",
    "dry-run": "run the real model or script on fake tensors, without a GPU",
    "calibrate": "what runs on this machine showed: show, prune, export",
    "lengths": "how many tokens your samples have",
    "oom": "why a run went out of memory, from its log or memory snapshot",
    "models": "models that are known by name",
    "gpus": "GPUs that are known by name",
    "mfu": "how much of the GPUs' peak a run uses",
    "profile": "where the time of a profiler trace went",
    "fleet": "which jobs of a cluster waste GPU-hours, from Prometheus",
    "doctor": "what this machine is: GPUs, links, network, software",
    "watch": "live GPU memory, utilization and network throughput",
    "dtypes": "number formats and quantization formats",
    "web": "the page and its JSON API from this machine, or as a static folder",
    "mcp": "tools for a model (Model Context Protocol)",
    "completion": "a script that completes commands and names in bash, zsh or fish",
    "schema": "JSON Schema of a scenario, a result or a measured case",
}
"""Every command has a module of its name here, with HELP, add_arguments(parser) and run(args) -> exit code."""

DEBUG_VARIABLE = "VRAMWISE_DEBUG"
INTERRUPTED = 130
_UNREACHABLE = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG}
)
"""A file that cannot be reached, to read or to write; a full disk is another matter."""
ENDED_BY = 128
"""A shell's exit code of a program that a signal ended, less the signal's number."""


class CommandModule(Protocol):
    HELP: str

    def add_arguments(self, parser: CommandParser) -> None: ...

    def run(self, args: Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (0, 1, 2, 3 or 4; 130 when interrupted, 143 when terminated)."""
    _never_fail_to_print()
    try:
        arguments = choose(sys.argv[1:] if argv is None else argv)
        with _ended_in_order():
            code = _dispatch(arguments)
            sys.stdout.flush()
        return code
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else VramwiseError.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return VramwiseError.exit_code
    except VramwiseError as error:
        return _complain(str(error), error.exit_code)
    except OSError as error:
        _drop_output()
        where = f"{shown_path(str(error.filename))}: " if error.filename else ""
        code = SourceError.exit_code if error.errno in _UNREACHABLE else VramwiseError.exit_code
        return _complain(f"{where}{error.strerror or error}", code)
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        what = f"{type(error).__name__} {clipped(str(error), 200)}"
        hint = f"run with {DEBUG_VARIABLE}=1 for the traceback"
        return _complain(f"internal error: {what} ({hint})", VramwiseError.exit_code)


def command() -> int:
    """`main` for a process that ends with it: what is in memory is not looked through once more, which took seconds,
    and for garbage less often than Python would: an estimate makes much and drops little, and took an eighth longer."""
    gc.set_threshold(20_000, 10, 10)
    code = main()
    if "_duckdb" not in sys.modules:  # whose bindings complain of what is left
        gc.freeze()
    return code


def command_module(name: str) -> CommandModule:
    """The module of a command, imported now."""
    from importlib import import_module

    return cast(CommandModule, import_module(f"vramwise.cli.{name.replace('-', '_')}"))


def command_parser(name: str, *, helped: bool = True) -> CommandParser:
    """The parser of a command with all its arguments; `helped`: with the help of each."""
    module = command_module(name)
    parser = CommandParser(prog=f"vramwise {name}", description=module.HELP)
    parser.helped = helped
    module.add_arguments(parser)
    return parser


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        print(_overview(), file=sys.stderr)
        return UsageError.exit_code
    first, *rest = arguments
    if first in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if first in ("-V", "--version"):
        from vramwise.plugins import installed

        print("\n".join([f"vramwise {__version__}", *(plugin.summary() for plugin in installed())]))
        return 0
    if first not in COMMANDS:
        raise UsageError(_unknown_command(first))
    try:
        args = command_parser(first, helped=any(word in HELP_FLAGS for word in rest)).parse(rest)
    except SystemExit as leaving:  # argparse's --help, which is printed by then
        return leaving.code if isinstance(leaving.code, int) else 0
    if getattr(args, "offline", False):
        os.environ["HF_HUB_OFFLINE"] = "1"
    run = command_module(first).run
    if not any(hasattr(args, flag) for flag in ("site", "no_site", "calibrate")):
        return run(args)
    from vramwise.cli.site_flags import site_of

    with site_of(args):
        return run(args)


def _overview() -> str:
    rows = "\n".join(f"  {name:<10} {said(what)}" for name, what in COMMANDS.items())
    return (
        f"vramwise: {said('how much GPU memory a model needs, and why')}\n\n"
        f"{said('usage')}: vramwise COMMAND …\n\n{rows}\n\n"
        f"{said('vramwise COMMAND --help says more; vramwise --version prints the version')}\n"
        f"{said('in Chinese: --lang zh, or VRAMWISE_LANG=zh')}"
    )


def _unknown_command(given: str) -> str:
    if given == "version":
        return 'unknown command "version": vramwise --version prints it'
    shown = clipped(given)
    if given.startswith("-"):
        return f'unknown option "{shown}": flags stand behind a command, as in vramwise estimate MODEL {shown}'
    from vramwise.sources.catalog import written, written_behind_organisation

    if written(given) or written_behind_organisation(given):
        return f'unknown command "{shown}": it is a model: vramwise estimate {shown}'
    near = nearest(given, COMMANDS)
    hint = f"did you mean {', '.join(near)}?" if near else f"expected one of {', '.join(COMMANDS)}"
    return f'unknown command "{shown}": {hint}'


def _complain(problem: str, code: int) -> int:
    complain(problem)
    return code


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command as an interrupt does: temporary files go, what is finished stays."""
    previous: dict[int, signal.Handlers] = {}
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup's SIG_IGN is left
            with contextlib.suppress(ValueError):  # not the main thread: whoever runs it there decides
                signal.signal(number, _end)
                previous[number] = signal.SIG_DFL
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _end(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(ENDED_BY + number)


def _never_fail_to_print() -> None:
    """Streams that somebody closed (`>&-`, `2>&-`) take nothing, and take none of what is for the other one."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _drop_output() -> None:
    """Send what is still buffered for a closed pipe or a full disk nowhere, so that the exit is quiet."""
    with contextlib.suppress(OSError, ValueError):  # stdout is no file (captured, or closed already)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
