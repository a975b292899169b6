"""The map of a job: one trace after the other becomes a part, in this process, in several, or in a share of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from vramwise.clusters import share
from vramwise.errors import SourceError
from vramwise.processes import begin_process, end_processes
from vramwise.utilization.job.folder import JobFolder, Stamp, stamp_of
from vramwise.utilization.job.parquet import ParquetFile
from vramwise.utilization.job.part import events_of, part_of
from vramwise.utilization.job.schema import TABLES
from vramwise.utilization.profiler.collect import read_trace
from vramwise.utilization.profiler.files import in_file

if TYPE_CHECKING:
    from concurrent.futures import Future

    from vramwise.clusters import Cluster

Trace = TypeVar("Trace")
AHEAD = 2
"""Traces that wait for each process."""
DIED = "the process that read it died (of too little memory?)"


class Done(NamedTuple):
    """What became of one trace: `why` it could not be read, or None."""

    trace: str
    why: str | None


class Read(NamedTuple):
    """A trace as its part, to be kept wherever the folder is, or why it could not be read."""

    stamp: Stamp
    tables: dict[str, bytes]
    why: str | None = None


def read_part(trace: str, *, partial: bool = False) -> Read:
    """Read one trace; nothing is written."""
    tables = {name: ParquetFile(kinds) for name, kinds in TABLES.items()}
    try:
        files = in_file(trace)
        stamp = stamp_of(trace)  # before it is read: what changes meanwhile is read again
        for file in files:
            recording = read_trace(file, partial=partial)
            for table, columns in chain(part_of(recording), events_of(recording)):
                tables[table].add(columns)
        return Read(stamp, {name: table.content() for name, table in tables.items()})
    except (SourceError, OSError, MemoryError) as problem:
        return Read({}, {}, str(problem) or "more memory than there is")


def map_trace(trace: str, out: str, *, partial: bool = False) -> Done:
    """Read one trace and keep its part in the folder `out`; or say why it could not be read.

    Raises SourceError where the folder cannot be written: then every other trace would fail too.
    """
    return _kept(trace, read_part(trace, partial=partial), JobFolder(out))


def _kept(trace: str, read: Read, folder: JobFolder) -> Done:
    if read.why is None:
        folder.write(read.stamp, read.tables)
    return Done(trace, read.why)


def shard_of(traces: Sequence[str], shard: str | None) -> list[str]:
    """Every N-th trace from the I-th for "I/N", all of them for None. Raises UsageError for any other text."""
    first, count = (1, 1) if shard is None else share(shard)
    return list(traces[first - 1 :: count])


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


def mapped_on(cluster: Cluster, traces: Iterable[str], do: Callable[[str], Read], folder: JobFolder) -> Iterator[Done]:
    """The same by the workers of a cluster: they see the traces, and their parts come back and are kept here.

    `do` is `read_part`: something that workers can import.
    """
    for trace, read in cluster.as_they_end(do, traces):
        yield _kept(trace, read, folder) if isinstance(read, Read) else Done(trace, DIED)


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
