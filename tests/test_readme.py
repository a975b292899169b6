"""README.md and the pages under docs/: every `$ vramwise …` in a console block prints what the page shows.

After a change of the output, write the pages anew: python tests/test_readme.py
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from judged_cases import Line, judging, write
from shown_commands import PATIENCE_S, sessions, shown, written_anew

ROOT = Path(__file__).parents[1]
DOCS = (
    "how-it-works",
    "plan",
    "training",
    "serving",
    "fit",
    "accuracy",
    "this-machine",
    "files",
    "how-to",
)  # seed-facts.md has its own test
GUIDES = sorted(
    str(path.relative_to(ROOT))
    for folder in ("tutorials", "concepts", "inside", "zh/tutorials", "zh/concepts")
    for path in (ROOT / "docs" / folder).glob("*.md")
)
PAGES = ("README.md", "README.zh.md", "CONTRIBUTING.md", *(f"docs/{name}.md" for name in DOCS), *GUIDES)
ACCURACY = "vramwise accuracy "
WIDTH = "100"
COUNT = re.compile(r"[\d,]+(?= cases(?: with| that|, all)| 个案例)|(?<= cases with )[\d,]+(?= measured values)")
FOUND: dict[str, Line] = {}
"""What becomes of each measured case today."""
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")
GENERATED = re.compile(r"reference/|\.svg$|(?:^|/)(?:contributing|changelog|security)\.md$")
"""Pages and pictures that are there once the site is built, which checks these links."""


@cache
def printed(command: str) -> str:
    """What a shell of 100 columns shows for a command, run at the root of the repository."""
    first, bar, rest = command.partition(" | ")
    if bar:  # commands that take long are run once, whatever the pages cut out of them
        return shown(rest, printed(first), merged=True).out
    return _table_of_errors(command) if command.startswith(ACCURACY) else shown(command, merged=True).out


def _table_of_errors(command: str) -> str:
    """`vramwise accuracy` in this process, where all of the pages' tables share what became of each case."""
    from vramwise.cli import accuracy

    parser = argparse.ArgumentParser()
    accuracy.add_arguments(parser)
    out = io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(out), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", WIDTH)
        patch.setattr("vramwise.accuracy.report.compare", judging(FOUND, is_held=__name__ != "__main__"))
        accuracy.run(parser.parse_args(shlex.split(command.removeprefix(ACCURACY))))
    return out.getvalue()


def commands_by_program() -> dict[str, list[tuple[str, str, str]]]:
    """(page, command, output) by what runs: one test each, so that nothing runs twice; all tables of errors in one."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for page in PAGES:
        for command, output in sessions(ROOT / page):
            runs = ACCURACY if command.startswith(ACCURACY) else command.partition(" | ")[0]
            found.setdefault(runs, []).append((page, command, output))
    return found


@pytest.mark.skipif(sys.platform == "win32", reason="the pages' commands are for a POSIX shell")
@pytest.mark.parametrize("sessions_of", commands_by_program().values(), ids=commands_by_program())
def test_the_page_shows_what_the_command_prints(sessions_of):
    for page, command, output in sessions_of:
        assert printed(command) == output, f"{page} is out of date: python tests/test_readme.py"


def test_the_readme_shows_the_main_commands():
    commands = [command for command, _ in sessions(ROOT / "README.md")]
    assert any(command.startswith("vramwise estimate") and "--task" not in command for command in commands)
    assert all(any(said in command for command in commands) for said in ("--task train", "-- vllm serve"))
    assert any(command.startswith("vramwise accuracy benchmarks/cases") for command in commands)


def test_the_pages_show_python_that_runs():
    codes = {
        code
        for page in ("README.md", *GUIDES)
        for code in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    }
    for code in codes:
        _python(code)


def _python(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"\d\.\d\d GiB ", done.stdout)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    for target in LINK.findall((ROOT / page).read_text("utf-8")):
        assert (page in (*GUIDES, "docs/accuracy.md", "docs/how-to.md") and GENERATED.search(target)) or (
            (ROOT / page).parent / target
        ).exists(), target


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_is_there(page):
    text = (ROOT / page).read_text("utf-8")
    named = re.findall(r"`((?:src|tests|benchmarks|docs|scripts|tools)/[\w./-]+?)`", text)
    assert [name for name in named if "NAME" not in name and not (ROOT / name).exists()] == []


def counted(page: str) -> str:
    """The page with today's number of measured cases and values where it speaks of them."""
    rows = [row for file in (ROOT / "benchmarks/cases").glob("*.jsonl") for row in file.read_text("utf-8").splitlines()]
    cases, values = len(rows), sum(len(json.loads(row)["measured"]) for row in rows)

    def number(found: re.Match[str]) -> str:
        return f"{values if page[: found.start()].endswith(' cases with ') else cases:,}"

    return COUNT.sub(number, page)


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_count_the_cases_of_today(page):
    text = (ROOT / page).read_text("utf-8")
    assert counted(text) == text, f"{page} is out of date: python tests/test_readme.py"


if __name__ == "__main__":
    for name in sys.argv[1:] or PAGES:
        page = ROOT / name
        page.write_text(written_anew(counted(page.read_text("utf-8")), printed), "utf-8")
    if not sys.argv[1:]:  # every case is on a page
        write(FOUND)
