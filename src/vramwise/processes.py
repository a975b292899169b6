"""What processes do that work for this one: leave interrupts to it, not outlive it, and end when it asks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor


def begin_process() -> None:
    """What a process does first: interrupts are its parent's to answer, and it does not outlive that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def end_processes(pool: ProcessPoolExecutor) -> None:
    """End the processes at once: those that nobody waits for may still be at work that takes minutes."""
    for process in list((pool._processes or {}).values()):
        process.terminate()
    pool.shutdown(cancel_futures=True)  # its thread collects them: two who wait for one process may both miss its end
