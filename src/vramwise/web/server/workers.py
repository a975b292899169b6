"""Processes that answer: each takes one question at a time, and one that is too slow or gone is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from vramwise.records import record
from vramwise.web.server.worker import ASKS_A_HUB


class Busy(Exception):
    """More questions wait than the limit allows, or one waited too long."""


class TooSlow(Exception):
    """An answer took longer than its limit; its process was ended."""


class Answered(NamedTuple):
    exit_code: int
    text: bytes


@record(frozen=False, eq=False)
class _Worker:
    process: asyncio.subprocess.Process

    async def ask(self, name: str, body: bytes, processes: int) -> Answered:
        """Raises IncompleteReadError, ConnectionError or ValueError where the process is gone."""
        questions, answers = self.process.stdin, self.process.stdout
        assert questions is not None
        assert answers is not None
        questions.write(b"%s %d %d\n" % (name.encode(), len(body), processes))
        questions.write(body)
        await questions.drain()
        code, length = (await answers.readuntil(b"\n")).split()
        return Answered(int(code), await answers.readexactly(int(length)))

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


class Workers:
    """Up to `most` processes of one kind, started when they are needed; `most_waiting` questions wait for one."""

    def __init__(self, kind: str, most: int, folders: Sequence[str], *, most_waiting: int, limit_s: float) -> None:
        self.kind, self.most, self.limit_s = kind, most, limit_s
        self._folders, self._most_waiting = tuple(folders), most_waiting
        self._free: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._places = most
        self._at_work = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._ending: set[asyncio.subprocess.Process] = set()
        self._ended = False

    async def ask(self, name: str, body: bytes, *, shared: bool = False) -> Answered:
        """Raises Busy, TooSlow; an answer of exit code 1 where a process died of the question.

        `shared`: the process may let others work beside it, as many as `most` leaves; there is one for each question.
        """
        await self._enter()
        worker, processes = None, max(1, self.most - self._at_work) if shared else 1
        self._at_work += processes
        try:
            worker = self._free.pop() if self._free else await self._start()
            async with asyncio.timeout(self.limit_s):
                answered = await worker.ask(name, body, processes)
            self._free.append(worker)
            worker = None
            return answered
        except TimeoutError:
            raise TooSlow from None
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError, OSError):
            return _DIED
        finally:
            if worker is not None:  # too slow, gone, or nobody waits any longer
                self._end(worker)
            self._at_work -= processes
            self._leave()

    async def warm(self, count: int) -> None:
        """Start processes before anybody asks."""
        self._free += await asyncio.gather(*(self._start() for _ in range(min(count, self.most) - len(self._all))))

    async def end(self) -> None:
        """End all processes at once, and wait until they are gone."""
        self._ended = True
        for worker in list(self._all):
            self._end(worker)
        await asyncio.gather(*(process.wait() for process in self._ending))

    async def _enter(self) -> None:
        if self._places > 0:
            self._places -= 1
            return
        if len(self._waiting) >= self._most_waiting:
            raise Busy
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self.limit_s):
                await turn
        except BaseException as problem:
            if turn.done() and not turn.cancelled():
                self._leave()
            else:
                self._waiting.remove(turn)
            if isinstance(problem, TimeoutError):
                raise Busy from None
            raise

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._places += 1

    async def _start(self) -> _Worker:
        if self._ended:
            raise Busy
        words = ("-m", "vramwise.web.server.worker", self.kind, *self._folders)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=None if os.environ.get("VRAMWISE_DEBUG") else asyncio.subprocess.DEVNULL, limit=1 << 16,
        )  # fmt: skip
        worker = _Worker(process)
        self._all.add(worker)
        return worker

    def _end(self, worker: _Worker) -> None:
        self._all.discard(worker)
        if worker in self._free:
            self._free.remove(worker)
        worker.end()
        self._ending = {process for process in self._ending if process.returncode is None} | {worker.process}


_DIED = Answered(
    1,
    b'{"error": {"kind": "InternalError", "message": "internal error: the answering process ended", "exit_code": 1}}\n',
)


class Answering:
    """Which kind of process answers which name: quick questions never wait for long ones, nor for a hub."""

    LONG = frozenset({"plan", "dry-run", "fit", "batch", "profile", "read", "compare", "oom", "accuracy", "nearest"})
    SEARCHES = frozenset({"plan", "fit"})
    """Of these, those that take all cores that no other long question has."""
    MANY = frozenset({"door", "cards", "grid", "suggestions"})
    """Names whose answer is dozens of estimates: they wait for one another, and nobody for them."""

    def __init__(self, folders: Sequence[str], limit_s: float, long_limit_s: float, processes: int) -> None:
        self.ended = False
        self.quick = Workers("quick", processes, folders, most_waiting=1000, limit_s=limit_s)
        self.many = Workers("quick", processes, folders, most_waiting=64, limit_s=limit_s)
        self.long = Workers("long", processes, folders, most_waiting=32, limit_s=long_limit_s)
        self.asking = Workers("asking", 8, folders, most_waiting=64, limit_s=limit_s)

    async def ask(self, name: str, body: bytes) -> Answered:
        """Raises Busy or TooSlow."""
        if name in self.LONG:
            return await self.long.ask(name, body, shared=name in self.SEARCHES)
        answered = await (self.many if name in self.MANY else self.quick).ask(name, body)
        return await self.asking.ask(name, body) if answered.exit_code == ASKS_A_HUB else answered

    async def end(self) -> None:
        """End all processes; questions that are still open are refused."""
        self.ended = True
        for workers in (self.quick, self.many, self.long, self.asking):
            await workers.end()
