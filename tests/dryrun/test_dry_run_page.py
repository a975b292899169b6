"""docs/dry-run.md: its commands run, and print what the page shows.

vLLM's part is what its wheel 0.19.0 made of the page's command (golden/vllm_start.json, recorded on 2026-11-30 with
transformers 4.57.6); its cache hangs on what the estimate leaves, and so moves with it.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from shown_commands import sessions
from vramwise.cli.main import main

pytest.importorskip("torch")

PAGE = Path(__file__).parents[2] / "docs" / "dry-run.md"
MODULES = Path(__file__).parent / "own_modules.py"
RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "vllm_start.json").read_text("utf-8"))
(SERVER, SERVED), (REFUSED, REASON), (ASSUMED, NOTE) = sessions(PAGE)
RUNS = re.findall(r"^vramwise dry-run mynet:.*", PAGE.read_text("utf-8"), re.MULTILINE)


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    """Runs a page's command, less its pipe, in a folder with `mynet.py`."""
    text = MODULES.read_text("utf-8").replace("class Deciding", "class Picky")
    (tmp_path / "mynet.py").write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)

    def asked(command):
        code = main(shlex.split(command.partition(" | ")[0])[1:])
        return SimpleNamespace(code=code, **capsys.readouterr()._asdict())

    return asked


def its_answer(question, config, timeout_s):
    """What vLLM's own code said, had it been left as much for its cache as it is today."""
    answer = RECORDED["answer"]
    cache = answer["cache_bytes"] + question["pool_bytes"] - RECORDED["pool_bytes"]
    share = cache / answer["cache_bytes"]
    blocks = int(answer["cache_blocks"] * share)
    tokens = blocks * answer["cache_tokens"] // answer["cache_blocks"]
    return {**answer, "cache_bytes": cache, "cache_blocks": blocks, "cache_tokens": tokens,
            "max_concurrency": answer["max_concurrency"] * share}  # fmt: skip


def test_vllms_start_stands_beside_todays_estimate(ask, monkeypatch):
    monkeypatch.setattr("vramwise.dryrun.vllm_serve._answer", its_answer)
    monkeypatch.setattr("vramwise.dryrun.vllm_serve._version", lambda package: RECORDED["answer"]["version"])
    found = ask(SERVER)
    first, last = map(int, re.findall(r"\d+(?=[,p])", SERVER.partition("sed -n ")[2]))
    assert (found.code, found.err) == (0, "")
    assert "\n".join(found.out.splitlines()[first - 1 : last]) + "\n" == SERVED


@pytest.mark.usefixtures("warm")
def test_what_hangs_on_values_is_said_with_its_line(ask, tmp_path):
    found = ask(REFUSED)
    assert found.err.replace(str(tmp_path), "/home/ann").split() == REASON.split()
    assert NOTE in ask(ASSUMED).out


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("command", RUNS)
def test_a_module_of_the_readers_own_runs(ask, command):
    assert ask(command).code == 0
