"""Rows of models by a second process, begun before they are asked for.

A list is shown in the order of sizes, and whether a model has a line hangs on the lines before it. What is worked out
ahead is therefore dropped where a line before makes it useless; it never changes a line.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from vramwise.errors import VramwiseError
from vramwise.processes import begin_process, end_processes

Answer = TypeVar("Answer")
Model = TypeVar("Model")
Answer_co = TypeVar("Answer_co", covariant=True)
MOST_PROCESSES = 2
WORTH_PROCESSES = 24
"""Models from which on a second process gains more than its start costs."""
MODELS_AHEAD = MOST_PROCESSES
"""Models begun behind the one that is waited for, one for each process: of more, more are begun for nothing."""


class Later(Protocol[Answer_co]):
    """An answer that somebody works out."""

    def done(self) -> bool: ...
    def result(self) -> Answer_co: ...


class Now(Generic[Answer]):
    """An answer that is worked out here, when it is asked for."""

    def __init__(self, work: Callable[[], Answer]) -> None:
        self._work = work
        self._answers: list[Answer] = []

    def done(self) -> bool:
        """Whether asking for it waits for nobody else."""
        return True

    def result(self) -> Answer:
        """The answer. Raises what the work raises."""
        if not self._answers:
            self._answers.append(self._work())
        return self._answers[0]


def later(pool: Executor | None, work: Callable[[], Answer]) -> Later[Answer]:
    """The answer of a process of the pool; without one, of this process once it is asked for."""
    return Now(work) if pool is None else pool.submit(work)


def begun_ahead(
    models: Iterable[Model], begin: Callable[[Model], Later[Answer]], many: int
) -> Iterator[tuple[Model, Later[Answer]]]:
    """Each of the models with its answer; so many of those behind it are begun already."""
    waiting: deque[tuple[Model, Later[Answer]]] = deque()
    for model in models:
        waiting.append((model, begin(model)))
        if len(waiting) > many:
            yield waiting.popleft()
    yield from waiting


@contextmanager
def processes_for(num_models: int) -> Iterator[ProcessPoolExecutor | None]:
    """A pool of processes; None where so few models, or so few cores, are not worth one.

    Raises VramwiseError where one of them dies.
    """
    processes = min(MOST_PROCESSES, os.cpu_count() or 1)
    if processes < 2 or num_models < WORTH_PROCESSES:
        yield None
        return
    pool = pool_of(processes)
    try:
        yield pool
        pool.shutdown(cancel_futures=True)
    except BrokenProcessPool:
        raise VramwiseError("a process that estimated models died (of too little memory?)") from None
    except BaseException:
        end_processes(pool)
        raise


def pool_of(processes: int) -> ProcessPoolExecutor:
    """Processes that know what this one knows, where that is possible; they start with the first question."""
    forks = sys.platform == "linux"  # what is imported and read is there at once; no thread holds a lock yet
    return ProcessPoolExecutor(processes, multiprocessing.get_context("fork" if forks else "spawn"), _begin)


def collect_garbage_seldom() -> None:
    """Descriptions and shapes live long and hold one another: looking through all of them costs more than it frees."""
    gc.set_threshold(200_000, 50, 1_000)


def _begin() -> None:
    begin_process()
    collect_garbage_seldom()
