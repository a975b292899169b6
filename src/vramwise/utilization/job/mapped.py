"""The map of a job: one trace after the other becomes a part, in this process, in several, or in a share of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from vramwise.errors import SourceError, UsageError
from vramwise.processes import begin_process, end_processes
from vramwise.utilization.job.folder import JobFolder
from vramwise.utilization.job.part import Rows, part_of
from vramwise.utilization.job.schema import TABLES
from vramwise.utilization.profiler.collect import read_trace
from vramwise.utilization.profiler.files import in_file

if TYPE_CHECKING:
    from concurrent.futures import Future

Trace = TypeVar("Trace")
AHEAD = 2
"""Traces that wait for each process."""
DIED = "the process that read it died (of too little memory?)"


class Done(NamedTuple):
    """What became of one trace: `why` it could not be read, or None."""

    trace: str
    why: str | None


def map_trace(trace: str, out: str, *, partial: bool = False) -> Done:
    """Read one trace and keep its part in the folder `out`; or say why it could not be read.

    Raises SourceError where the folder cannot be written: then every other trace would fail too.
    """
    folder = JobFolder(out)
    tables: dict[str, Rows] = {name: [] for name in TABLES}
    try:
        for file in in_file(trace):
            for table, rows in part_of(read_trace(file, partial=partial)).items():
                tables[table] += rows
    except (SourceError, MemoryError) as problem:
        return Done(trace, str(problem) or "more memory than there is")
    folder.write(trace, tables)
    return Done(trace, None)


def shard_of(traces: Sequence[str], shard: str | None) -> list[str]:
    """Every N-th trace from the I-th for "I/N", counted from 1; all of them for None. Raises UsageError."""
    if shard is None:
        return list(traces)
    first, slash, count = shard.partition("/")
    if not (slash and first.isdecimal() and count.isdecimal() and len(shard) < 20 and 1 <= int(first) <= int(count)):
        raise UsageError(
            f'--shard: expected I/N with I from 1 to N ("3/16"), got "{shard[:40]}"'
            + (": an index from 0 is $((INDEX + 1))/N" if first == "0" else "")
        )
    return list(traces[int(first) - 1 :: int(count)])


def mapped(traces: Sequence[Trace], do: Callable[[Trace], Done], jobs: int = 1) -> Iterator[Done]:
    """The end of each trace, as they come. A trace whose process dies could not be read; the rest goes on.

    `do` is `map_trace` with its folder: something that other processes can import.
    """
    if jobs == 1 or len(traces) < 2:
        yield from map(do, traces)
        return
    suspects = yield from _by_processes(do, deque(traces), min(jobs, len(traces)))
    for trace in suspects:  # one of these killed its process: each has one of its own now
        if (yield from _by_processes(do, deque([trace]), 1)):
            yield Done(str(trace), DIED)


def _by_processes(do: Callable[[Trace], Done], traces: deque[Trace], jobs: int) -> Generator[Done, None, list[Trace]]:
    """The end of each trace by processes of a pool; another pool where it breaks. Returns what was under way then."""
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    lost: list[Trace] = []
    while traces:
        pool = ProcessPoolExecutor(jobs, get_context("spawn"), begin_process)
        running: dict[Future[Done], Trace] = {}
        try:
            while traces or running:
                while traces and len(running) < jobs * AHEAD:
                    future = pool.submit(do, traces[0])
                    running[future] = traces.popleft()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    done = future.result()
                    del running[future]
                    yield done
        except BrokenProcessPool:
            lost += running.values()
        finally:
            end_processes(pool)
    return lost
