"""A text that holds command lines as people pass them on: behind a prompt, in a fence of Markdown, over several lines.

Nothing is run. A text is taken for commands where nothing else is in it: output without a prompt, a log or prose make
it something else. Around fences prose may stand, and in a fence output below a prompt.
"""

from __future__ import annotations

import re
import shlex

from vramwise.errors import SourceError, UsageError
from vramwise.interop.files.programs import OF_THE_SHELL, programs_in_text
from vramwise.interop.files.shell_words import commands_of

LONGEST_TEXT = 64 << 10
_PROMPT = re.compile(
    r"[ \t]*(?:\([\w.-]{1,60}\)[ \t]?)?"
    r"(?:\[?[\w.-]{1,60}@[\w.-]{1,60}(?:[: ][^\s$#%]{0,200})?[$#%]|[$❯%>]|PS [^>\n]{0,200}>)[ \t]+"
)
"""`$ `, `(venv) $ `, `user@host:~/work# `, `PS C:\\work> `; `#` alone begins a comment."""

_MORE = re.compile(r"[ \t]*>[ \t]+")
_FENCE = re.compile(r"[ \t]{0,3}(`{3,}|~{3,})[ \t]*([^`\s]{0,40})[^`]*")
_OF_SHELLS = frozenset(
    {"", "bash", "sh", "shell", "zsh", "console", "shell-session", "terminal", "text", "powershell", "cmd"}
)
_CONTINUED = re.compile(r"[ \t][\\^`][ \t]*$")
"""What goes on in the next line, of a shell (`\\`), of cmd (`^`) and of PowerShell (a backquote)."""
_CONTINUED_LINE = re.compile(r"\\\r?\n")
_OF_WINDOWS = re.compile(r"(?:^|[\s\"'=])[A-Za-z]:\\|[ \t][\^`][ \t]*$|\.exe\b")


_TYPESET = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u00a0": " "})
"""Quotes and blanks that a word processor or a chat put in the place of typed ones."""


def words_of_command(text: str) -> list[str]:
    """The words of one command line that came as one text: prompts, comments, redirections and what only continues a
    line go, variables that the text sets are filled in, and a path of Windows keeps its backslashes.

    What starts no program, several, or needs variables that are not said is cut at its blanks alone.
    Raises UsageError for quotes that are not closed.
    """
    text = text.translate(_TYPESET)
    pasted = pasted_commands(text)
    programs = programs_in_text(pasted, {}, "") if pasted else []
    if len(programs) == 1 and not programs[0].notes:
        return list(programs[0].words)
    try:
        return shlex.split(_CONTINUED_LINE.sub(" ", text))
    except ValueError as problem:
        raise UsageError(f"the command line cannot be read: {problem}") from None


def pasted_commands(text: str) -> str | None:
    """The text of a shell that `text` holds, or None where it is no command line of a program that is known here."""
    if len(text) > LONGEST_TEXT:
        return None
    lines = text.replace("\r\n", "\n").split("\n")
    fenced = _fenced(lines)
    if fenced is None:
        found = _commands(lines, with_output=False)
    else:  # each fence by itself: what one of them prints or quotes says nothing of another
        texts = (_commands(one, with_output=True) for one in fenced)
        found = "\n".join(text for text in texts if text and _is_closed(text))
    try:
        return found if found and _starts_a_program(found, alone=fenced is None) else None
    except SourceError:
        return None


def _fenced(lines: list[str]) -> list[list[str]] | None:
    """The lines within each fence of a shell's, None where there is no fence."""
    kept: list[list[str]] = []
    mark, takes, seen = "", False, False
    for line in lines:
        fence = _FENCE.fullmatch(line)
        if fence is not None and not mark:
            mark, takes, seen = fence.group(1), fence.group(2).lower() in _OF_SHELLS, True
            kept.append([])
        elif fence is not None and fence.group(1).startswith(mark) and not fence.group(2):
            mark = ""
        elif mark and takes:
            kept[-1].append(line)
    return kept if seen else None


def _commands(lines: list[str], *, with_output: bool) -> str:
    """The lines without prompts. Where there are any, output is left out (`with_output`) or makes all of it none."""
    prompted = any(_PROMPT.match(line) for line in lines)
    of_windows = any(_OF_WINDOWS.search(line) for line in lines)
    kept: list[str] = []
    continued = False
    for line in lines:
        prompt = (_MORE if continued else _PROMPT).match(line)
        if prompted and prompt is None and not continued and line.strip() and not line.lstrip().startswith("#"):
            if not with_output:
                return ""
            continue
        line = line[prompt.end() :] if prompt is not None else line
        end = _CONTINUED.search(line)
        continued = end is not None
        line = line[: end.start()] if end is not None else line
        line = line.replace("\\", "\\\\") if of_windows else line  # there it parts folders
        kept.append(line + " \\" if end is not None else line)
    return "\n".join(kept).strip()


def _starts_a_program(text: str, *, alone: bool) -> bool:
    """Whether a known program is started and, `alone`, nothing else stands there but what is the shell's own."""
    if not _is_closed(text):
        return False
    programs = programs_in_text(text, {}, "")
    if not programs or not alone:
        return bool(programs)
    others = [one for one in commands_of(text).commands if one.words[:1] and one.words[0] not in OF_THE_SHELL]
    return len(others) <= len(programs)


def _is_closed(text: str) -> bool:
    """Whether every quote is closed; in a here-document one need not be."""
    try:
        return "<<" in text or bool(shlex.split(text, comments=True))
    except ValueError:
        return False
