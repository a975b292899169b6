"""argparse with vramwise's manners: an error is raised as UsageError, an unknown flag gets its neighbours."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from vramwise.cli.language import broken, help_said, is_translated, said
from vramwise.errors import UsageError, clipped, nearest

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


HELP_FLAGS = ("-h", "--help")


class _Formatter(argparse.HelpFormatter):
    """Finds the terminal's width itself: argparse asks shutil, whose import takes longer than all of its own work."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return broken(text, width) if is_translated() else super()._split_lines(text, width)


def _columns() -> int:
    """As shutil.get_terminal_size: COLUMNS, else the terminal's, else 80."""
    with suppress(ValueError):  # no number, or one of more digits than int reads
        stated = int(os.environ.get("COLUMNS", ""))
        if stated > 0:
            return stated
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return 80


class CommandParser(argparse.ArgumentParser):
    """The parser of one command. Flags are never abbreviated, so that a new flag cannot change an old call.

    `takes_command`: the words after `--`, where there are several, or a quoted text that starts a program, are another
    program's command line and become `engine_command`. `takes_files`: words that stand apart between flags are further
    `files`.
    `helped`: whether somebody reads the help of its flags; without, those of a scenario have none.
    `brief`: the flags by heading, and examples, that `--help` shows; `--help all` has every flag.
    """

    takes_command = False
    takes_files = False
    helped = True
    brief: tuple[Mapping[str, Sequence[str]], Sequence[str]] | None = None

    def __init__(self, *, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False, formatter_class=_Formatter)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse a command's arguments. Raises UsageError; leaves by SystemExit after printing --help."""
        self._help_in_brief(arguments)
        command: list[str] = []
        if self.takes_command and "--" in arguments:
            cut = list(arguments).index("--")
            words = split_words(arguments[cut + 1 :])
            if len(words) > 1:
                arguments, command = arguments[:cut], words
        elif self.takes_command:
            arguments, command = self._apart_from_quoted(arguments)
        self._refuse_unknown_flags(arguments)
        parsed, left_over = self.parse_known_args(arguments)
        if self.takes_files:
            parsed.files += [word for word in left_over if not word.startswith("-")]
            left_over = [word for word in left_over if word.startswith("-")]
        if left_over:
            stray = clipped(left_over[0])
            if "--gpu" in self.option_strings() and not any(not action.option_strings for action in self._actions):
                raise UsageError(f'unexpected argument "{stray}": did you mean --gpu {stray}?')
            raise UsageError(f'unexpected argument "{stray}"  ({self.prog} --help)')
        if self.takes_command:
            parsed.engine_command = command
        return parsed

    def _apart_from_quoted(self, arguments: Sequence[str]) -> tuple[Sequence[str], list[str]]:
        """The arguments without a quoted command line ("vllm serve …"), and the words of that."""
        before = None
        for place, argument in enumerate(arguments):
            is_value = before is not None and before.nargs != 0
            if " " in argument and not is_value and not argument.startswith("-"):
                from vramwise.interop.launch import names_a_program

                try:
                    words = split_words([argument])
                except UsageError:
                    if names_a_program(argument.split()):
                        raise
                    words = []  # a name with an apostrophe
                if names_a_program(words):
                    return [*arguments[:place], *arguments[place + 1 :]], words
            before = self._option_string_actions.get(argument)
        return arguments, []

    def _help_in_brief(self, arguments: Sequence[str]) -> None:
        """Leave after the brief help, or after all of it, where that is asked for."""
        ours = list(arguments[: list(arguments).index("--")] if "--" in arguments else arguments)
        asked = next((place for place, word in enumerate(ours) if word in HELP_FLAGS), None)
        if asked is not None and is_translated():
            self._translate_help()
        if self.brief is None or asked is None:
            return
        from vramwise.cli.brief_help import ALL, brief_help

        if ours[asked + 1 : asked + 2] == [ALL]:
            self.print_help()
        else:
            print(brief_help(self, *self.brief, _columns() - 2), end="")
        raise SystemExit(0)

    def _translate_help(self) -> None:
        self.description = said(self.description or "")
        for action in self._actions:
            action.help = help_said(action.dest, action.help or "").replace("%%", "%").replace("%", "%%")
        for group in self._action_groups:
            group.title, group.description = (text and said(text) for text in (group.title, group.description))

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{clipped(message, 300)}  ({self.prog} --help)")

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help; unlike argparse's own, it does not pass over a closed pipe or a full disk."""
        print(self.format_help(), end="", file=file)

    def option_strings(self) -> list[str]:
        """Every flag of the command."""
        return [option for action in self._actions for option in action.option_strings]

    def _refuse_unknown_flags(self, arguments: Sequence[str]) -> None:
        known = self.option_strings()
        for argument in arguments:
            if argument == "--":
                return
            flag = argument.partition("=")[0]
            if flag.startswith("--") and flag not in known:
                from vramwise.cli.meant import meant_flag

                takes_model = any(action.metavar == "MODEL" for action in self._actions if not action.option_strings)
                meant = meant_flag(flag, known, takes_model=takes_model)
                near = [meant] if meant is not None else nearest(flag, known)
                hint = f"did you mean {', '.join(near)}?" if near else f"{self.prog} --help lists all"
                raise UsageError(f'unknown flag "{clipped(flag)}": {hint}')


def split_words(arguments: Sequence[str]) -> list[str]:
    """Words of a command line, which may have come as one quoted text.

    Raises UsageError for quotes that are not closed.
    """
    if len(arguments) != 1 or not any(space in arguments[0] for space in " \n\t"):
        return list(arguments)
    from vramwise.interop.files.pasted_commands import words_of_command

    return words_of_command(arguments[0])
