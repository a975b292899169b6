"""The commands that a page shows with what they print, and what a shell of 100 columns prints for them today.

Most commands are run in this process, which has read the catalog and described models by then; those that start
processes of their own, and whatever a shell has a part in, by a shell.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from unittest import mock

from vramwise.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[1]
HERE = frozenset(COMMANDS) - {"batch", "dry-run", "mcp", "measure", "profile", "watch", "web"}
"""Commands that answer in the process that asks."""
OF_A_SHELL = re.compile(r"[|<>;&$*`(){}~#]")
TERMINAL = {"COLUMNS": "100", "LC_ALL": "C.UTF-8", "VRAMWISE_SITE": ""}
CONSOLE = re.compile(r"(?<=```console\n).*?(?=^```)", re.DOTALL | re.MULTILINE)
SESSION = re.compile(r"^\$ (?P<command>(?:.*\\\n)*.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)
OURS = re.compile(r"vramwise ")
PATIENCE_S = 1800  # a machine that is busy with other things; the slowest takes two minutes on an idle one


class Shown(NamedTuple):
    out: str
    err: str
    code: int


def sessions(page: Path) -> Iterator[tuple[str, str]]:
    """Each of our commands in a page's console blocks, with the output below it."""
    for block in CONSOLE.findall(page.read_text("utf-8")):
        for session in SESSION.finditer(block):
            if OURS.match(session["command"]):
                yield session["command"], session["output"]


def written_anew(text: str, printed: Callable[[str], str]) -> str:
    """A page's text, each of our commands with what it prints now."""

    def session(found: re.Match[str]) -> str:
        command = found["command"]
        return f"$ {command}\n{printed(command) if OURS.match(command) else found['output']}"

    return CONSOLE.sub(lambda block: SESSION.sub(session, block.group()), text)


def shown(command: str, given: str = "", *, merged: bool = False, at: Path = ROOT) -> Shown:
    """What a command prints at the root of the repository, or in the folder `at`; `merged`: errors among the rest, as
    on a terminal."""
    words = [] if OF_A_SHELL.search(command) or given else shlex.split(command.replace("\\\n", " "))
    if words[:1] == ["vramwise"] and len(words) > 1 and words[1] in HERE:
        return _in_this_process(words[1:], merged, at)
    return _in_a_shell(command, given, merged, at)


def _in_this_process(words: list[str], merged: bool, at: Path) -> Shown:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(out if merged else err)
    with contextlib.chdir(at), mock.patch.dict(os.environ, TERMINAL), streams[0], streams[1]:
        code = main(words)
    return Shown(*(stream.buffer.getvalue().decode() for stream in (out, err)), code)


def _in_a_shell(command: str, given: str, merged: bool, at: Path) -> Shown:
    with TemporaryDirectory() as folder:
        program = Path(folder) / "vramwise"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vramwise "$@"\n')
        program.chmod(0o755)
        variables = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **TERMINAL}
        done = subprocess.run(
            ["sh", "-c", command], input=given, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE, text=True, encoding="utf-8", timeout=PATIENCE_S,
            check=False, cwd=at, env={**os.environ, **variables},
        )  # fmt: skip
    return Shown(done.stdout, done.stderr or "", done.returncode)
