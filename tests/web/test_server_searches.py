"""Searches of the server: over all cores, the same bytes, given up when who asked leaves or the server ends."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vramwise.cli.main import main

sys.path.append(str(Path(__file__).parent))

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from test_server import PATIENCE_S, Server, run_apart, running

from vramwise import processes
from vramwise.planner import ahead
from vramwise.web.api import answer_text
from vramwise.web.server.workers import Answered, Workers

LAYOUTS = {"model": "qwen2.5-0.5b", "task": "train", "gpu": "rtx-4090", "num_gpus": 8,
           "train": {"framework": "megatron", "sequence_length": 16384}}  # fmt: skip
WHOLE_CATALOG = {"gpu": "rtx-4090"}
forks = pytest.mark.skipif(
    sys.platform != "linux" or (os.cpu_count() or 1) < 2, reason="several processes: on Linux with several cores"
)


@forks
def test_several_processes_give_the_commands_bytes(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(processes, "_stated", 2)
    begun = _started(monkeypatch)
    plan = answer_text("plan", json.dumps({"scenario": LAYOUTS, "goal": "train"}))
    fit = answer_text("fit", json.dumps({"gpu": "rtx-3060", "family": "qwen2", "params": [0, 2e9]}))
    assert len(begun) == 2
    monkeypatch.setattr(processes, "_stated", 1)
    words = "qwen2.5-0.5b --task train --gpu rtx-4090 -n 8 --framework megatron --sequence-length 16384"
    main(["plan", *words.split(), "--goal", "train", "--json"])
    main(["fit", "--gpu", "rtx-3060", "--family", "qwen2", "--params", "..2b", "--json"])
    assert len(begun) == 2
    assert plan + fit == capsys.readouterr().out


def _started(monkeypatch: Any) -> list[int]:
    """Pools of processes that are started from now on, by their sizes."""
    begun: list[int] = []
    pool_of = ahead.pool_of
    monkeypatch.setattr(ahead, "pool_of", lambda many: begun.append(many) or pool_of(many))
    return begun


@forks
def test_who_leaves_ends_the_processes_that_searched(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        assert server.question("version", {})[0] == 200  # all that answer quickly are there
        before = _descendants(server.process.pid)
        asked = _asked(server)
        _until(lambda: len(_descendants(server.process.pid) - before) > 2)  # one that answers, and those beside it
        searching = _descendants(server.process.pid) - before
        asked.close()
        _until(lambda: not searching & _descendants(server.process.pid) and not any(map(_is_alive, searching)))
        assert before <= _descendants(server.process.pid)
        assert server.question("version", {})[0] == 200


@forks
def test_an_interrupt_ends_a_search_at_once(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        assert server.question("version", {})[0] == 200  # all that answer quickly are there
        before = _descendants(server.process.pid)
        asked = _asked(server)
        _until(lambda: len(_descendants(server.process.pid) - before) > 2)
        every = _descendants(server.process.pid)
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.process.wait(timeout=PATIENCE_S) == 130
        _until(lambda: not any(map(_is_alive, every)))
        asked.close()


def test_searches_share_the_cores() -> None:
    """Each has its own process, and those that nobody else has at work beside it."""
    workers = _Counting("long", 4, (), most_waiting=8, limit_s=PATIENCE_S)

    async def asked() -> list[Answered]:
        questions = [workers.ask("plan", b"", shared=True) for _ in range(3)]
        found = await asyncio.gather(*questions, workers.ask("read", b""))
        return [*found, await workers.ask("fit", b"", shared=True)]

    assert [one.exit_code for one in run_apart(asked())] == [4, 1, 1, 1, 4]


class _Counting(Workers):
    async def _start(self) -> Any:
        return _Told()


class _Told:
    async def ask(self, name: str, body: bytes, processes: int) -> Answered:
        await asyncio.sleep(0)
        return Answered(processes, b"")


def _asked(server: Server) -> http.client.HTTPConnection:
    """A search that takes long, and whose answer nobody read yet."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    connection.request("POST", "/api/v1/fit", json.dumps(WHOLE_CATALOG), {"Content-Type": "application/json"})
    return connection


def _descendants(pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry))
    found, waiting = set[int](), [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return found


def _is_alive(pid: int) -> bool:
    """Whether it still does anything: a process that nobody collected is over too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)
