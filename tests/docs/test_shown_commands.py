"""Every `vramwise …` that a page shows or names, wherever it stands: the command and its flags are there, and what this
machine can answer without a file of the reader's is answered. What console blocks print is held word by word elsewhere
(tests/test_readme.py, test_command_pages.py, tests/seed).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from vramwise.cli.main import COMMANDS, command_parser, main

ROOT = Path(__file__).parents[2]
HISTORY = {"before-0.1.0.md"}
"""A page that says what commands were called when they came."""
PAGES = [
    *(ROOT / name for name in ("README.md", "README.zh.md", "CONTRIBUTING.md", "skills/vramwise/SKILL.md")),
    *(page for folder in ("docs", "deploy", "benchmarks") for page in sorted((ROOT / folder).rglob("*.md"))
      if page.name not in HISTORY),
]  # fmt: skip
FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
OF_A_SHELL = {"", "console", "text", "sh", "bash"}
LINE = re.compile(r"^\s*(?:\$ |srun .*')?(vramwise (?![\d/ ]).*)$", re.MULTILINE)
IN_A_SENTENCE = re.compile(r"`(vramwise [^`]+)`")
END = re.compile(r"\s(?:[|>#]|&&|\|\|)(?:\s|$)|\s{3,}|'$")
"""Where a command ends: a pipe, a file, a comment, or the column that says what it does."""
ANSWERS = {"estimate", "check", "plan", "gpus", "models", "mfu", "schema", "dtypes"}
"""Commands that answer from what is in the package."""
PLACEHOLDER = re.compile(r"…|\b[A-Z]{4,}\b|\$|(?:^|[\s=])\.{0,2}/|\[|\w\|\w|\.\w{2,5}(?:\s|$)|\bhere\b|<")
"""What only the reader can fill in: a file, a card of this machine, a name."""
FRAGMENTS = {"vramwise mfu --task decode", "vramwise mfu --measure-peak"}
"""Named without what they are asked about."""


def commands(page: Path, *, console: bool = True) -> Iterator[str]:
    """Each command that a page shows, once; those of its console blocks too, or not."""
    text = re.sub(r" *\\\n\s*", " ", page.read_text("utf-8"))
    read = OF_A_SHELL if console else OF_A_SHELL - {"console"}
    shown = [line for language, body in FENCE.findall(text) if language in read for line in LINE.findall(body)]
    prose = FENCE.sub("", text)
    shown += re.findall(r"^ {4}(vramwise (?![\d/]).*)$", prose, re.MULTILINE)
    shown += [" ".join(found.split()) for found in IN_A_SENTENCE.findall(prose)]
    yield from dict.fromkeys(END.split(command)[0].strip() for command in shown)


def words(command: str) -> list[str]:
    """The words after `vramwise`, without the language and without the command line of another tool."""
    try:
        found = shlex.split(command)[1:]
    except ValueError:  # a sentence's apostrophe
        found = command.split()[1:]
    if found[:1] == ["--lang"]:
        found = found[2:]
    return found[: found.index("--")] if "--" in found else found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_flag_that_is_shown_is_there(page):
    wrong = []
    for command in commands(page):
        name, *rest = words(command) or [""]
        if name.startswith("-") or name == "…":
            continue
        if name not in COMMANDS:
            wrong.append(command)
            continue
        known = set(command_parser(name).option_strings())
        flags = (word.lstrip("[").rstrip("],").partition("=")[0] for word in rest)
        wrong += [f"{command}: {flag}" for flag in flags if re.match(r"--?[a-zA-Z]", flag) and flag not in known]
    assert wrong == []


def answerable() -> list[str]:
    found = dict.fromkeys(command for page in PAGES for command in commands(page, console=False))
    return [command for command in found if is_answerable(command)]


def is_answerable(command: str) -> bool:
    name, *rest = words(command) or [""]
    asks = name in ANSWERS and rest and rest not in (["--json"], ["--scenario"])
    return bool(asks) and command not in FRAGMENTS and not PLACEHOLDER.search(command)


def test_many_commands_are_answerable():
    assert len(answerable()) >= 12


@pytest.mark.parametrize("command", answerable())
def test_what_is_shown_is_answered(command, monkeypatch, capsys):
    monkeypatch.setenv("VRAMWISE_SITE", "")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)[1:]) in (0, 3), capsys.readouterr().err
