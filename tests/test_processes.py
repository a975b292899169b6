"""Processes that work for this one end without a word."""

from __future__ import annotations

import signal
import sys
from types import SimpleNamespace

import pytest

from vramwise import processes


@pytest.mark.skipif(sys.platform == "win32", reason="no process can be stopped there")
def test_every_process_stops_before_the_first_ends(monkeypatch):
    done: list[tuple[str, int]] = []
    monkeypatch.setattr(processes.os, "kill", lambda pid, number: done.append((signal.Signals(number).name, pid)))

    def worker(pid: int) -> SimpleNamespace:
        return SimpleNamespace(pid=pid, kill=lambda: done.append(("kill", pid)))

    pool = SimpleNamespace(_processes={1: worker(1), 2: worker(2)}, shutdown=lambda **_: done.append(("shutdown", 0)))
    processes.end_processes(pool)
    assert done == [("SIGSTOP", 1), ("SIGSTOP", 2), ("kill", 1), ("kill", 2), ("shutdown", 0)]
