"""docs/fleet.md: its command prints what the page shows.

After a change of the output, write the page anew: python tests/fleet/test_page.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "fleet.md"
BLOCK = re.compile(r"(?<=```console\n)\$ (vramwise [^\n]*)\n(.*?)(?=```)", re.DOTALL)


def printed(command: str) -> str:
    """What the command prints to a pipe of 100 columns."""
    variables = {**os.environ, "COLUMNS": "100", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=ROOT, capture_output=True, text=True, encoding="utf-8",
        timeout=1800, check=True, env=variables,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(("command", "output"), BLOCK.findall(PAGE.read_text("utf-8")))
def test_the_page_shows_what_the_command_prints(command, output):
    assert printed(command) == output


if __name__ == "__main__":
    text = PAGE.read_text("utf-8")
    PAGE.write_text(BLOCK.sub(lambda match: f"$ {match[1]}\n{printed(match[1])}", text), "utf-8")
