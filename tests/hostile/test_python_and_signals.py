"""Odd ways to start and to end the program: without docstrings, by SIGTERM, by SIGHUP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest


@pytest.mark.parametrize(
    "arguments",
    [["estimate", "gpt2"], ["estimate", "gpt2", "--task", "train", "--gpu", "4090"], ["estimate", "--help"]],
    ids=" ".join,
)
def test_without_docstrings(arguments):
    done = subprocess.run(
        [sys.executable, "-OO", "-m", "vramwise", *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def _heeds_signals() -> None:
    """Where the tests run in the background or under nohup, their children are born deaf."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_no_temporary_file_and_what_was_there(number, tmp_path):
    (tmp_path / "out.jsonl").write_text("before")
    running = subprocess.Popen(
        [sys.executable, "-m", "vramwise", "batch", "-", "-o", "out.jsonl"],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=_heeds_signals,
    )  # fmt: skip
    assert running.stdin is not None
    running.stdin.write(json.dumps({"model": "gpt2", "task": "load"}).encode() + b"\n")
    running.stdin.flush()
    temporary = tmp_path / f".out.jsonl.{running.pid}.tmp"
    while running.poll() is None and not (temporary.exists() and temporary.stat().st_size):
        time.sleep(0.01)
    running.send_signal(number)
    _, said = running.communicate()
    assert running.returncode == 128 + number
    assert said == b""
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]
    assert (tmp_path / "out.jsonl").read_text() == "before"


def test_a_hangup_that_is_ignored_stays_ignored(tmp_path):
    """As nohup has it."""
    program = "import signal, os; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    program += "from vramwise.cli import main as m\n"
    program += "m._dispatch = lambda arguments: os.kill(os.getpid(), signal.SIGHUP) or 0\n"
    program += "raise SystemExit(m.main(['estimate']))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
