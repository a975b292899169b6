"""What processes do that work for this one: leave interrupts to it, not outlive it, and end when it asks."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor


MOST_BESIDE = 8
"""Processes for one search: more gain little, and each holds what it has worked out."""
_stated: int | None = None


def state_processes(many: int) -> None:
    """How many processes may work on one question of this process from now on: a server says so before each."""
    global _stated
    _stated = many if sys.platform == "linux" else 1  # elsewhere they begin anew, without what a server forbade


def processes_beside() -> int:
    """How many processes may work on one question: what was stated, else the cores that this process may use."""
    if sys.platform == "emscripten":
        return 1  # a browser's worker
    if _stated is not None:
        return min(MOST_BESIDE, _stated)
    affinity = getattr(os, "sched_getaffinity", None)
    return min(MOST_BESIDE, len(affinity(0)) if affinity else os.cpu_count() or 1)


def begin_process() -> None:
    """What a process does first: interrupts are its parent's to answer, it does not outlive that, and it is silent.

    Answers and errors go to the parent. What would still be printed is of a queue that ended while it was read.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not os.environ.get("VRAMWISE_DEBUG"):
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def end_processes(pool: ProcessPoolExecutor) -> None:
    """End the processes at once: those that nobody waits for may still be at work that takes minutes.

    The pool's thread may be reading an answer just then: it waits for the rest of one that was cut off as long as
    somebody may still write it, and this process holds the pipe open too (Python 3.11 concurrent/futures/process.py
    `wait_result_broken_or_wakeup`: `result_reader.recv()`).
    """
    processes = list((pool._processes or {}).values())
    answers = getattr(pool._result_queue, "_writer", None)
    if answers is not None:
        answers.close()
    for process in processes:
        process.kill()
    pool.shutdown(cancel_futures=True)  # its thread collects them: two who wait for one process may both miss its end
