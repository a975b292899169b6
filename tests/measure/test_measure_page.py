"""docs/measure.md: its runs on a CPU print what the page shows, as far as it shows it."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
from pathlib import Path

import pytest
from tiny import CONFIG, here

from shown_commands import sessions
from vramwise.cli.main import main
from vramwise.measure import launch

PAGE = Path(__file__).parents[2] / "docs" / "measure.md"
RUN_WITH = re.search(r"torch (\S+) · transformers (\S+)", PAGE.read_text("utf-8"))


def installed() -> tuple[str, ...]:
    pytest.importorskip("torch")
    return tuple(importlib.metadata.version(name) for name in ("torch", "transformers"))


@pytest.mark.parametrize(("command", "output"), list(sessions(PAGE)))
def test_the_page_shows_what_a_run_prints(command, output, tmp_path, monkeypatch, capsys):
    if installed() != RUN_WITH.groups():
        pytest.skip(f"the page's runs are those of {RUN_WITH[0]}")
    folder = tmp_path / "tiny-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "run_job", here)
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out.startswith(output)
