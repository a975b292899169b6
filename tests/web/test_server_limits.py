"""What the server bounds: time to answer, time for a body to come, questions that wait, and many who ask at once."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from vramwise.web.server.workers import Answered, Busy, TooSlow, Workers

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[2] / "benchmarks")]
from test_server import PATIENCE_S, Server, run_apart, running

STRICT = """
from vramwise.web.server.serve import Serving, serve
serve(Serving(long_limit_s=0.2, body_s=0.2), lambda address: print(address, flush=True))
"""


@contextmanager
def strict(folder: Path) -> Iterator[Server]:
    own = {**os.environ, "HF_HUB_OFFLINE": "1", "VRAMWISE_CACHE": str(folder / "cache")}
    process = subprocess.Popen([sys.executable, "-c", STRICT], stdout=subprocess.PIPE, text=True, cwd=folder, env=own)
    assert process.stdout is not None
    try:
        yield Server(process, int(process.stdout.readline().strip().rstrip("/").rpartition(":")[2]))
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def test_an_answer_and_a_body_that_take_too_long_are_ended(tmp_path: Path) -> None:
    with strict(tmp_path) as server:
        status, _, content = server.question("fit", {"gpu": "rtx-4090"})
        assert (status, json.loads(content)["error"]["message"]) == (504, "fit took too long and was ended")
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as slow:
            head = "POST /api/v1/version HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            slow.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
            assert slow.recv(4096).startswith(b"HTTP/1.1 408 ")
        assert server.question("version", {})[0] == 200


class _Slow(Workers):
    async def _start(self) -> Any:
        return _Sleeper()


class _Sleeper:
    async def ask(self, name: str, body: bytes, processes: int) -> Answered:
        await asyncio.sleep(float(body))
        return Answered(0, b"")

    def end(self) -> None:
        self.process = None

    process: Any = None


def test_who_waits_behind_too_many_is_told_at_once() -> None:
    async def asked() -> list[Answered | BaseException]:
        workers = _Slow("quick", 1, (), most_waiting=1, limit_s=PATIENCE_S)
        return await asyncio.gather(*(workers.ask("result", b"0.01") for _ in range(3)), return_exceptions=True)

    found = run_apart(asked())
    assert [isinstance(one, Busy) for one in found] == [False, False, True]


def test_many_connections_at_once_are_all_answered(tmp_path: Path, capsys: Any) -> None:
    """Three seconds of the load that benchmarks/web.py measures; how long an answer takes hangs on what else runs."""
    with running(tmp_path, HF_HUB_OFFLINE="1") as server:
        run_apart(importlib.import_module("web").load(server.port, "result", 3, 200, 50))
    assert "200 connections, 150 questions" in (said := capsys.readouterr().out)
    assert " 0 errors" in said


def test_one_that_is_too_slow_makes_room_for_the_next() -> None:
    async def asked() -> Answered:
        workers = _Slow("quick", 1, (), most_waiting=1, limit_s=0.05)
        with pytest.raises(TooSlow):
            await workers.ask("result", b"60")
        return await workers.ask("result", b"0")

    assert run_apart(asked()).exit_code == 0
