"""docs/diffusion.md: every command prints what the page shows.

Write it anew: python tests/docs/test_diffusion_page.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "diffusion.md"
BLOCK = re.compile(r"(?<=```console\n)\$ (.*)\n((?:(?!```)[\s\S])*)(?=```)")


def printed(command: str) -> str:
    """What a screen of 100 columns shows for a command."""
    words = command.split()
    assert words[0] == "vramwise"
    variables = {**os.environ, "COLUMNS": "100", "LC_ALL": "C.UTF-8", "VRAMWISE_SITE": ""}
    done = subprocess.run(
        [sys.executable, "-m", "vramwise", *words[1:]], capture_output=True, text=True, encoding="utf-8",
        timeout=600, check=False, env=variables,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(("command", "output"), BLOCK.findall(PAGE.read_text("utf-8")))
def test_the_page_shows_what_the_command_prints(command, output):
    assert printed(command) == output


if __name__ == "__main__":
    text = PAGE.read_text("utf-8")
    PAGE.write_text(BLOCK.sub(lambda found: f"$ {found[1]}\n{printed(found[1])}", text), "utf-8")
