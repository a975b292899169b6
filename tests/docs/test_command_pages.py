"""Pages whose commands print what the page shows, and whether each page that shows commands is held so by some test.

After a change of the output, write them anew: python tests/docs/test_command_pages.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import test_readme
from shown_commands import sessions, shown, written_anew

ROOT = Path(__file__).parents[2]
PAGES = {"diffusion": (0, 3), "fleet": (0,), "utilization": (0,)}
"""Pages by name, and the exit codes that their commands may end with: 3 says that a card is too small."""
BY_ANOTHER_TEST = {
    "docs/dry-run.md": "tests/dryrun/test_dry_run_page.py",
    "docs/measure.md": "tests/measure/test_measure_page.py",
    "docs/plugins.md": "tests/test_plugins.py",
    "docs/seed-facts.md": "tests/seed/test_documented_commands.py",
    "docs/whole-jobs.md": "tests/utilization/test_job_folder.py",
    "skills/vramwise/SKILL.md": "tests/web/test_skill.py",
}
"""What needs files, a library or an environment that its folder's tests make."""
TEXT = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


def page(name: str) -> Path:
    return ROOT / "docs" / f"{name}.md"


def printed(command: str, codes: tuple[int, ...]) -> str:
    """What the command prints to a pipe of 100 columns."""
    done = shown(command)
    assert done.err == ""
    assert done.code in codes
    return done.out


@pytest.mark.parametrize(
    ("name", "command", "output"), [(name, *session) for name in PAGES for session in sessions(page(name))]
)
def test_the_page_shows_what_the_command_prints(name, command, output):
    assert printed(command, PAGES[name]) == output


def test_whatever_a_page_prints_is_held():
    held = {*(f"docs/{name}.md" for name in PAGES), *test_readme.PAGES, *BY_ANOTHER_TEST}
    every = [path for folder in ("docs", "deploy", "skills", ".") for path in (ROOT / folder).glob("*.md")]
    every += [path for folder in ("docs", "deploy", "skills", "benchmarks") for path in (ROOT / folder).rglob("*.md")]
    assert {str(path.relative_to(ROOT)) for path in every if any(sessions(path))} - held == set()
    for name, test in BY_ANOTHER_TEST.items():
        assert Path(name).name in (ROOT / test).read_text("utf-8")


def test_a_block_of_plain_text_holds_commands_alone():
    for path in (ROOT / "docs").rglob("*.md"):
        for block in TEXT.findall(path.read_text("utf-8")):
            assert [line for line in block.splitlines() if not re.match(r"(?:vramwise|srun) ", line)] == [], path


@pytest.mark.parametrize("folder", [".", "tutorials", "concepts", "inside", "zh", "zh/tutorials", "zh/concepts"])
def test_every_page_starts_from_the_question(folder):
    for path in (ROOT / "docs" / folder).glob("*.md"):
        title, first = [line for line in path.read_text("utf-8").splitlines() if line][:2]
        assert re.search(r"[?？]", title) or re.fullmatch(r"\*.*\?\*", first), path


if __name__ == "__main__":
    for one, codes in PAGES.items():
        path = page(one)
        path.write_text(written_anew(path.read_text("utf-8"), lambda said, codes=codes: printed(said, codes)), "utf-8")
