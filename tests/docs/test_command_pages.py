"""Pages whose commands print what the page shows.

After a change of the output, write them anew: python tests/docs/test_command_pages.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from shown_commands import shown

ROOT = Path(__file__).parents[2]
PAGES = {"diffusion": (0, 3), "fleet": (0,), "utilization": (0,)}
"""Pages by name, and the exit codes that their commands may end with: 3 says that a card is too small."""
BLOCK = re.compile(r"(?<=```console\n)\$ (.*)\n((?:(?!```)[\s\S])*)(?=```)")


def page(name: str) -> Path:
    return ROOT / "docs" / f"{name}.md"


def printed(command: str, codes: tuple[int, ...]) -> str:
    """What the command prints to a pipe of 100 columns."""
    assert command.startswith("vramwise ")
    done = shown(command)
    assert done.err == ""
    assert done.code in codes
    return done.out


@pytest.mark.parametrize(
    ("name", "command", "output"),
    [(name, *block) for name in PAGES for block in BLOCK.findall(page(name).read_text("utf-8"))],
)
def test_the_page_shows_what_the_command_prints(name, command, output):
    assert printed(command, PAGES[name]) == output


def written_anew(name: str) -> str:
    def fresh(found: re.Match[str]) -> str:
        return f"$ {found[1]}\n{printed(found[1], PAGES[name])}"

    return BLOCK.sub(fresh, page(name).read_text("utf-8"))


if __name__ == "__main__":
    for one in PAGES:
        page(one).write_text(written_anew(one), "utf-8")
