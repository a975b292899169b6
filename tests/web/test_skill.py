"""skills/vramwise/SKILL.md: every worked call answers what the page says of its JSON."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from vramwise.cli.main import main

PAGE = (Path(__file__).parents[2] / "skills" / "vramwise" / "SKILL.md").read_text("utf-8")
CALLS = re.findall(r"```console\n\$ (.*)\n```\n\n```json\n(.*)\n```", PAGE)


def holds(found, said):
    """Whether what is said of an answer is in it."""
    if isinstance(said, dict):
        return all(key in found and holds(found[key], value) for key, value in said.items())
    if isinstance(said, list):
        return all(holds(one, other) for one, other in zip(found, said, strict=True))
    return found == said


def test_there_are_calls():
    assert len(CALLS) == PAGE.count("```console") == 5


@pytest.mark.parametrize(("command", "said"), CALLS)
def test_a_worked_call_answers_what_the_page_says(command, said, capsys):
    assert main(shlex.split(command)[1:]) in (0, 3)
    assert holds(json.loads(capsys.readouterr().out), json.loads(said))


def test_it_begins_as_agents_expect():
    head = PAGE.split("---")[1]
    assert "name: vramwise" in head
    assert 0 < len(re.search(r"description: (.*)", head)[1]) <= 1024
