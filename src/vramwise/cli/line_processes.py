"""Lines answered by several processes, in the order in which they came."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import TypeVar

from vramwise.errors import VramwiseError

Line = TypeVar("Line")
A = TypeVar("A")

LINES_A_TURN = 8  # sent together: a closed-form answer takes a millisecond, as long as sending it
TURNS_AHEAD = 4  # for each process: lines that are read before the answer to the oldest is written


def answered_by(processes: int, lines: Iterator[Line], answer: Callable[[Line], A]) -> Iterator[A]:
    """The answer to each line by one of so many processes, in order; few lines are read ahead, however many there are.

    Processes are started anew, not forked: the thread of a progress bar may hold a lock just then. Whatever ends the
    iteration (an interrupt, a closed pipe) ends them too. Raises VramwiseError where one of them dies.
    """
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin)
    waiting: deque[Future[list[A]]] = deque()
    try:
        while turn := list(islice(lines, LINES_A_TURN)):
            waiting.append(pool.submit(_answers, answer, turn))
            if len(waiting) >= TURNS_AHEAD * processes:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    except BrokenProcessPool:
        raise VramwiseError("a process that answered lines died (of too little memory?): try fewer --jobs") from None
    finally:
        _end(pool)


def _answers(answer: Callable[[Line], A], lines: list[Line]) -> list[A]:
    return [answer(line) for line in lines]


def _begin() -> None:
    """What a process does first: interrupts are its parent's to answer, and it does not outlive that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _end(pool: ProcessPoolExecutor) -> None:
    """End the processes at once: those that nobody waits for may still be at a line that takes seconds."""
    for process in list((pool._processes or {}).values()):
        process.terminate()
    pool.shutdown(cancel_futures=True)  # its thread collects them: two who wait for one process may both miss its end
