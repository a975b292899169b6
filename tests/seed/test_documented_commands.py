"""docs/seed-facts.md: every command prints what the page shows.

After a change of the output, write the page anew: python tests/seed/test_documented_commands.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "seed-facts.md"
BLOCK = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
ROWS = range(1, 31)


def sessions():
    """Each command of the page with the output below it."""
    for block in BLOCK.findall(PAGE.read_text("utf-8")):
        for session in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = session.partition("\n")
            yield command, output


def run(command, folder):
    """What a shell of 100 columns prints for a command."""
    program = Path(folder) / "vramwise"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vramwise "$@"\n')
    program.chmod(0o755)
    variables = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, encoding="utf-8", timeout=1800, check=False,
        env={**os.environ, **variables},
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="the page's commands are for a POSIX shell")
@pytest.mark.parametrize(("command", "output"), list(sessions()))
def test_the_page_shows_what_the_command_prints(command, output, tmp_path):
    assert run(command, tmp_path) == output


def test_every_row_has_a_command():
    headings = re.findall(r"^## (.*) ·.*\n(?:(?!^## )[\s\S])*?```console", PAGE.read_text("utf-8"), re.MULTILINE)
    covered = {int(number) for heading in headings for number in re.findall(r"S(\d+)", heading)}
    assert set(ROWS) <= covered


def test_the_commands_that_need_an_extra_say_so():
    """All others answer with the wheel alone."""
    page = PAGE.read_text("utf-8")
    need = {"web": "vramwise web ", "torch": "vramwise dry-run "}
    for extra, start in need.items():
        before = page.partition(f"$ {start}")[0].rpartition("```\n")[2]
        assert f"`vramwise[{extra}]`" in before
    programs = {command.split()[1] for command, _ in sessions()}
    assert programs - {"web", "dry-run"} <= {"estimate", "gpus", "dtypes", "plan", "mfu", "profile", "doctor", "models"}


if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:

        def fresh(block):
            commands = re.findall(r"^\$ (.*)", block.group(), flags=re.MULTILINE)
            return "".join(f"$ {command}\n{run(command, folder)}" for command in commands)

        PAGE.write_text(BLOCK.sub(fresh, PAGE.read_text("utf-8")), "utf-8")
