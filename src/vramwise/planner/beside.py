"""Processes that work beside one another on parts of one search, started once there is enough to do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from vramwise.errors import VramwiseError

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

Item = TypeVar("Item")
Answer = TypeVar("Answer")
WORTH_BESIDE = 8
"""Parts (layouts, models) from which on starting processes costs less than they gain."""
_AHEAD = 2
"""Parts that wait for each process, so that none waits for this one."""


class Beside:
    """Up to `most` processes; of one it is this process that works. At the end of `with` they end, whatever they do."""

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Beside:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._pool is not None:
            from vramwise.processes import end_processes

            end_processes(self._pool)

    def in_order(self, work: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
        """What the work makes of each, in their order. Raises VramwiseError where a process dies."""
        if self._most == 1:
            yield from map(work, items)
            return
        from concurrent.futures.process import BrokenProcessPool

        waiting: deque[Future[Answer]] = deque()
        try:
            for item in items:
                waiting.append(self._processes().submit(work, item))
                if len(waiting) > _AHEAD * self._most:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise VramwiseError("a process that searched died (of too little memory?)") from None

    @property
    def are_several(self) -> bool:
        return self._most > 1

    def _processes(self) -> ProcessPoolExecutor:
        if self._pool is None:
            from vramwise.planner.ahead import pool_of

            self._pool = pool_of(self._most)
        return self._pool
