"""docs/seed-facts.md: every command prints what the page shows.

After a change of the output, write the page anew: python tests/seed/test_documented_commands.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from shown_commands import sessions, shown, written_anew

PAGE = Path(__file__).parents[2] / "docs" / "seed-facts.md"
ROWS = range(1, 31)


def printed(command):
    done = shown(command)
    assert done.err == ""
    return done.out


@pytest.mark.skipif(sys.platform == "win32", reason="the page's commands are for a POSIX shell")
@pytest.mark.parametrize(("command", "output"), list(sessions(PAGE)))
def test_the_page_shows_what_the_command_prints(command, output):
    assert printed(command) == output


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
    programs = {command.split()[1] for command, _ in sessions(PAGE)}
    assert programs - {"web", "dry-run"} <= {"estimate", "gpus", "dtypes", "plan", "mfu", "profile", "doctor", "models"}


if __name__ == "__main__":
    PAGE.write_text(written_anew(PAGE.read_text("utf-8"), printed), "utf-8")
