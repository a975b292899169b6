"""Work that a Dask cluster does: one task an item, the ends as they come or in order.

Security of an address `tls://` (certificates, key) is Dask's own: its configuration or DASK_DISTRIBUTED__COMM__TLS__*.
"""

from __future__ import annotations

import ipaddress
import logging
import sys
import tomllib
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib import import_module
from itertools import islice
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from vramwise import __version__
from vramwise.errors import SourceError, UsageError, VramwiseError, clipped, nearest
from vramwise.files import read_at_most, shown_path
from vramwise.units import MIB

Item = TypeVar("Item")
End = TypeVar("End")

KINDS: Final = {
    "slurm": ("dask_jobqueue", "SLURMCluster", "dask-jobqueue"),
    "pbs": ("dask_jobqueue", "PBSCluster", "dask-jobqueue"),
    "lsf": ("dask_jobqueue", "LSFCluster", "dask-jobqueue"),
    "sge": ("dask_jobqueue", "SGECluster", "dask-jobqueue"),
    "htcondor": ("dask_jobqueue", "HTCondorCluster", "dask-jobqueue"),
    "kubernetes": ("dask_kubernetes.operator", "KubeCluster", "dask-kubernetes"),
    "local": ("distributed", "LocalCluster", "distributed"),
}
"""What a file may start: its table's name, and the class whose arguments the table holds."""
LARGEST_FILE: Final = MIB
CONNECT_S: Final = 10
SAID_AFTER_S = 5.0
FIRST_WORKER_S = 600.0
"""A batch system may let the first worker wait."""
COUNT_EVERY_S: Final = 1.0
AHEAD: Final = 2
"""Items that wait for each thread of the workers."""


def share(text: str) -> tuple[int, int]:
    """I and N of "I/N", counted from 1: the share of one of an array of jobs. Raises UsageError for any other text."""
    first, slash, count = text.partition("/")
    if not (slash and first.isdecimal() and count.isdecimal() and len(text) < 20 and 1 <= int(first) <= int(count)):
        from_zero = ": an index from 0 is $((INDEX + 1))/N" if first == "0" else ""
        raise UsageError(f'--shard: expected I/N with I from 1 to N ("3/16"), got "{clipped(text)}"{from_zero}')
    return int(first), int(count)


class Lost(NamedTuple):
    """What there is of an item whose workers died one after the other."""


class OtherVersion(NamedTuple):
    """What a worker of another version gives back instead of an answer."""

    version: str


class Cluster:
    """A connection to a scheduler whose workers have this version."""

    def __init__(self, client: Any, address: str) -> None:
        self.client, self.address = client, address
        self._threads, self._counted_at = 0, float("-inf")

    def as_they_end(self, do: Callable[[Item], End], items: Iterable[Item]) -> Iterator[tuple[Item, End | Lost]]:
        """Each item with its end. Raises VramwiseError where the scheduler goes away."""
        rest, running = iter(items), dict[str, Item]()
        ends: Any = import_module("distributed").as_completed(loop=self.client.loop)

        def begin(count: int) -> None:
            for item in islice(rest, count):
                future = self._begun(do, item)
                running[future.key] = item
                ends.add(future)

        begin(self._ahead())
        for future in ends:
            yield running.pop(future.key), self._end(future)
            begin(1 + max(0, self._ahead() - len(running) - 1))

    def in_order(self, do: Callable[[Item], End], items: Iterable[Item]) -> Iterator[End | Lost]:
        """The end of each item in the order of the items; few are read ahead, however many there are."""
        rest, running = iter(items), deque[Any]()
        while True:
            running.extend(self._begun(do, item) for item in islice(rest, max(1, self._ahead() - len(running))))
            if not running:
                return
            yield self._end(running.popleft())

    def _ahead(self) -> int:
        """How many items may be under way; workers come and go, so they are counted now and then."""
        if monotonic() - self._counted_at > COUNT_EVERY_S:
            with self._scheduler():
                threads: dict[str, int] = self.client.nthreads()
            self._threads, self._counted_at = sum(threads.values()), monotonic()
        return max(1, AHEAD * self._threads)

    def _begun(self, do: Callable[[Item], End], item: Item) -> Any:
        with self._scheduler():
            return self.client.submit(partial(_of_this_version, __version__, do), item, pure=False)

    def _end(self, future: Any) -> Any:
        from distributed import KilledWorker

        with self._scheduler():
            try:
                found = future.result()
            except KilledWorker:
                return Lost()
        if isinstance(found, OtherVersion):
            raise _other_version("a worker", found.version)
        return found

    @contextmanager
    def _scheduler(self) -> Iterator[None]:
        from concurrent.futures import CancelledError

        try:
            if self.client.status != "running":
                raise CancelledError
            yield
        except (CancelledError, OSError, TimeoutError):
            raise VramwiseError(
                f"the Dask scheduler {clipped(self.address, 100)} went away: run again for what had not ended"
            ) from None
        except ModuleNotFoundError as problem:
            raise _other_version("a worker", f"none ({clipped(str(problem), 100)})") from None


@contextmanager
def connected(where: str) -> Iterator[Cluster]:
    """A cluster by its scheduler's address, or one that is started as a file says and ended with the block.

    Raises UsageError, SourceError for a scheduler that does not answer, VramwiseError for workers of another version.
    """
    distributed = _imported("distributed", "distributed")
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that differ: vramwise's version is looked at here
        _quiet()
        target = where if "://" in where else stack.enter_context(_started(where))
        address = target if isinstance(target, str) else str(target.scheduler_address)
        if target is where or not address.startswith("inproc://"):
            _say_what_is_plain(address)
        try:
            client = stack.enter_context(_client(distributed, target))
            address = str(client.scheduler.address)
            _wait_for_workers(client, where)
            _check_versions(client.run(_version, on_error="return"))
        except VramwiseError:
            raise
        except Exception as problem:  # what is no scheduler may answer anything
            raise SourceError(f"--dask {clipped(where, 100)}: no answer ({clipped(str(problem), 200)})") from None
        yield Cluster(client, address)


def _client(distributed: Any, target: Any) -> Any:
    """A connection. One that failed half-way is closed to itself: its end would wait for the other side, and print."""
    client = distributed.Client.__new__(distributed.Client)
    try:
        client.__init__(target, timeout=CONNECT_S, set_as_default=False)
    except Exception:
        client.status = "closed"
        raise
    return client


def _wait_for_workers(client: Any, where: str) -> None:
    try:
        client.wait_for_workers(1, timeout=SAID_AFTER_S)
    except TimeoutError:
        name = clipped(where, 100)
        print(f"vramwise: --dask {name}: waiting for the first worker, up to {FIRST_WORKER_S:.0f} s", file=sys.stderr)
        client.wait_for_workers(1, timeout=FIRST_WORKER_S)


def _of_this_version(version: str, do: Callable[[Item], End], item: Item) -> End | OtherVersion:
    """Runs in a worker, which may have come since the others were asked for their version."""
    return do(item) if version == __version__ else OtherVersion(__version__)


def _version() -> str:
    return __version__


def _check_versions(said: dict[str, object]) -> None:
    for worker, version in said.items():
        if version != __version__:
            raise _other_version(f"worker {worker}", version if isinstance(version, str) else f"none ({version})")


def _other_version(worker: str, version: str) -> VramwiseError:
    return VramwiseError(
        f"--dask: {clipped(worker)} has vramwise {clipped(version, 100)}, expected {__version__} as here"
    )


def _say_what_is_plain(address: str) -> None:
    scheme, _, rest = address.partition("://")
    if scheme not in ("tcp", "tls"):
        raise UsageError(
            f'--dask: expected tcp://HOST:PORT, tls://HOST:PORT or FILE.toml, got "{clipped(address, 100)}"'
        )
    if scheme == "tcp" and not _is_loopback(rest.rsplit(":", 1)[0].strip("[]")):
        print(
            "vramwise: --dask tcp:// is plain: who is on that network can read and change the work; tls:// is not",
            file=sys.stderr,
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def _started(path: str) -> Iterator[Any]:
    """The cluster that a file describes: one table named after what starts it, and how many `jobs`."""
    kind, jobs, settings = _described(path)
    module, name, package = KINDS[kind]
    starter = getattr(_imported(module, package), name)
    cluster = None
    try:
        cluster = starter(**settings)
        if jobs is not None:
            _scale(cluster, jobs, by_jobs=module == "dask_jobqueue")
    except (TypeError, ValueError, OSError, RuntimeError) as problem:
        if cluster is not None:
            _close(cluster)
        elif module.startswith("dask_kubernetes"):
            _end_half_begun(starter)
        why = clipped(" ".join(str(problem).split()), 300)
        raise UsageError(f"{shown_path(path)}: [{kind}] does not start a cluster ({why})") from None
    with cluster:
        yield cluster


def _close(cluster: Any) -> None:
    """End a cluster of which not all jobs could be submitted: Dask insists that what it made has begun or failed."""
    status = import_module("distributed.core").Status
    for worker in getattr(cluster, "workers", {}).values():
        if worker.status == status.created:
            worker.status = status.failed
    cluster.close()


def _end_half_begun(starter: Any) -> None:
    """Delete what a KubeCluster made before it failed. dask-kubernetes (2026.3, `reap_clusters`) would try when Python
    ends, and print a traceback where Kubernetes cannot be asked.
    """
    for each in list(starter._instances):
        with suppress(Exception):
            each.close(timeout=CONNECT_S)
        each.shutdown_on_close = False


def _scale(cluster: Any, jobs: int, *, by_jobs: bool) -> None:
    if not by_jobs:
        cluster.scale(n=jobs)
        return

    async def submit() -> None:
        cluster.scale(jobs=jobs)
        await cluster._correct_state()  # else what sbatch (qsub, bsub) answers is logged, and nobody comes

    cluster.sync(submit)


def _described(path: str) -> tuple[str, int | None, dict[str, object]]:
    where = shown_path(path)
    if not path.endswith(".toml"):
        raise UsageError(f'--dask: expected tcp://HOST:PORT, tls://HOST:PORT or FILE.toml, got "{where}"')
    try:
        document = tomllib.loads(read_at_most(path, LARGEST_FILE).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise UsageError(f"{where}: is no TOML ({clipped(str(problem), 100)})") from None
    jobs = document.pop("jobs", None)
    if jobs is not None and (not isinstance(jobs, int) or isinstance(jobs, bool) or not 1 <= jobs <= 100_000):
        raise UsageError(f"{where}: jobs: expected a whole number ≥ 1, got {clipped(str(jobs))}")
    kind, settings = next(iter(document.items()), ("", None))
    if len(document) != 1 or not isinstance(settings, dict) or kind not in KINDS:
        meant = nearest(kind, KINDS, 1)
        hint = f" (did you mean [{meant[0]}]?)" if meant and kind not in KINDS else ""
        raise UsageError(f"{where}: expected one table out of {', '.join(f'[{each}]' for each in KINDS)}{hint}")
    return kind, jobs, settings


def _imported(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        extra = "'vramwise[scale]'" if package == "distributed" else package
        raise VramwiseError(f"--dask needs {package}: pip install {extra}") from None


def _quiet() -> None:
    """What is wrong is said here in one line."""
    for name in ("distributed", "tornado", "tornado.application", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
