"""A closed pipe, a full disk, a path that cannot be written: quiet or one line, exit code 1, nothing half-written."""

from __future__ import annotations

import io
import json
import os

import pytest

from vramwise.cli.screens.paint import show

LINES = 300
COMMANDS = [
    ["estimate", "gpt2", "--task", "load", "--json"],
    ["estimate", "gpt2", "--task", "load"],
    ["estimate", "gpt2"],
    ["batch", "in.jsonl"],
    ["accuracy", "cases.jsonl"],
    ["models"],
    ["gpus"],
    ["dtypes"],
    ["schema"],
    ["--help"],
    ["estimate", "--help"],
]


@pytest.fixture
def files(program):
    line = json.dumps({"model": "gpt2", "task": "load"}) + "\n"
    (program.folder / "in.jsonl").write_text(line * LINES)
    case = {"id": "a", "scenario": json.loads(line), "measured": {"weights": 1}, "source": "a log"}
    (program.folder / "cases.jsonl").write_text(json.dumps(case) + "\n")
    return program


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_nobody_reads_the_pipe(arguments, files):
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = files(*arguments, stdout=write_end)
    finally:
        os.close(write_end)
    assert (done.code, done.err) == (1, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_the_disk_is_full(arguments, files):
    with open("/dev/full", "wb") as full:
        done = files(*arguments, stdout=full.fileno())
    assert done.code == 1
    assert done.only_line() == "No space left on device"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_an_output_file_on_a_full_disk(files):
    assert "No space left on device" in files("batch", "in.jsonl", "-o", "/dev/full").complaint(1)


@pytest.mark.parametrize("out", ["no folder/out.jsonl", "folder", "in.jsonl/out", "a" * 5000])
def test_an_output_that_cannot_be_written(out, files):
    (files.folder / "folder").mkdir()
    before = sorted(path.name for path in files.folder.iterdir())
    files("batch", "in.jsonl", "-o", out).complaint(4)
    assert sorted(path.name for path in files.folder.iterdir()) == before
    assert list((files.folder / "folder").iterdir()) == []


WRITING = (
    "plan gpt2 --goal run --gpu 4090 --save", "estimate gpt2 --task train --plot", "watch --count 1 -o",
)  # fmt: skip


@pytest.mark.parametrize("words", WRITING)
def test_a_folder_that_is_not_there_is_said_before_anything_else(words, files):
    ending = {"--plot": ".svg", "-o": ".csv"}.get(words.split()[-1], ".json")
    said = files(*words.split(), f"no folder/out{ending}").complaint(4)
    assert "there is no such folder" in said


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("words", ["compare pipe pipe", "plan gpt2 --goal run --inventory pipe.csv"])
def test_nobody_waits_for_a_pipe(words, files):
    for name in ("pipe", "pipe.csv"):
        os.mkfifo(files.folder / name)
    assert "is a named pipe, expected a file" in files(*words.split()).complaint(4)


def test_an_answer_that_was_there_is_kept_when_the_new_one_fails(files):
    out = files.folder / "out.jsonl"
    out.write_text("before")
    files("batch", "gone.jsonl", "-o", "out.jsonl").complaint(4)
    assert out.read_text() == "before"
    assert sorted(path.name for path in files.folder.iterdir()) == ["cases.jsonl", "in.jsonl", "out.jsonl"]


def test_a_closed_stdout_is_no_traceback(files):
    command = 'ulimit -t 10; exec "$0" -m vramwise schema >&-'
    import subprocess
    import sys

    done = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 1


class Terminal(io.StringIO):
    """Standard output as a terminal is, for the screen with colours."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    "text", ["\x1b]0;owned\x07name", [("\x1b[2J\x9b31m", "bold"), ("\x7fname", "")]], ids=["plain", "styled"]
)
def test_foreign_text_does_not_steer_a_terminal_that_has_colours(text, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    show([text])
    shown = terminal.getvalue()
    assert "name" in shown
    assert not any(mark in shown for mark in ("\x1b]", "\x07", "\x1b[2J", "\x9b", "\x7f"))
