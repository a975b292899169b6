"""What a shell of 100 columns prints for a command that a page shows.

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
PATIENCE_S = 1800  # a machine that is busy with other things; the slowest takes two minutes on an idle one


class Shown(NamedTuple):
    out: str
    err: str
    code: int


def shown(command: str, given: str = "", *, merged: bool = False) -> Shown:
    """What a command prints at the root of the repository; `merged`: errors among the rest, as on a terminal."""
    words = [] if OF_A_SHELL.search(command) or given else shlex.split(command.replace("\\\n", " "))
    if words[:1] == ["vramwise"] and len(words) > 1 and words[1] in HERE:
        return _in_this_process(words[1:], merged)
    return _in_a_shell(command, given, merged)


def _in_this_process(words: list[str], merged: bool) -> Shown:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(out if merged else err)
    with contextlib.chdir(ROOT), mock.patch.dict(os.environ, TERMINAL), streams[0], streams[1]:
        code = main(words)
    return Shown(*(stream.buffer.getvalue().decode() for stream in (out, err)), code)


def _in_a_shell(command: str, given: str, merged: bool) -> Shown:
    with TemporaryDirectory() as folder:
        program = Path(folder) / "vramwise"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vramwise "$@"\n')
        program.chmod(0o755)
        variables = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **TERMINAL}
        done = subprocess.run(
            ["sh", "-c", command], input=given, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE, text=True, encoding="utf-8", timeout=PATIENCE_S,
            check=False, cwd=ROOT, env={**os.environ, **variables},
        )  # fmt: skip
    return Shown(done.stdout, done.stderr or "", done.returncode)
