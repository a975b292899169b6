"""Lines answered by several processes, in the order in which they came."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import islice
from typing import TypeVar

from vramwise.errors import VramwiseError
from vramwise.processes import begin_process, end_processes

Line = TypeVar("Line")
A = TypeVar("A")

LINES_A_TURN = 8  # sent together: a closed-form answer takes a millisecond, as long as sending it
TURNS_AHEAD = 4  # for each process: lines that are read before the answer to the oldest is written


def answered_by(processes: int, lines: Iterator[Line], answer: Callable[[Line], A]) -> Iterator[A]:
    """The answer to each line by one of so many processes, in order; few lines are read ahead, however many there are.

    Processes are started anew, not forked: the thread of a progress bar may hold a lock just then. Whatever ends the
    iteration (an interrupt, a closed pipe) ends them too. Raises VramwiseError where one of them dies.
    """
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), begin_process)
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
        end_processes(pool)


def answered_by_dask(where: str, lines: Iterator[Line], answer: Callable[[Line], A]) -> Iterator[A]:
    """The same by the workers of a Dask cluster. Raises as `clusters.connected` and `Cluster.in_order`.

    Raises VramwiseError.
    """
    from vramwise.clusters import Lost, connected

    turns = iter(lambda: list(islice(lines, LINES_A_TURN)), [])
    with connected(where) as cluster:
        for answers in cluster.in_order(partial(_answers, answer), turns):
            if isinstance(answers, Lost):
                raise VramwiseError("the workers that answered lines died (of too little memory?)")
            yield from answers


def _answers(answer: Callable[[Line], A], lines: list[Line]) -> list[A]:
    return [answer(line) for line in lines]
