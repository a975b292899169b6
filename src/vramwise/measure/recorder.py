"""Bytes at each mark of a run, and the peak between marks: CUDA's counters, or the CPU allocator's own events.

Both kinds of device give the same `Record`. On CUDA the allocator counts by itself and its peak is reset at every mark.
On a CPU there are no counters: torch's profiler reports every allocation and free (`profile_memory`), which are played
through after the run. That makes the harness testable on any machine, and also tells which tensors make up the peak.
Records count an allocation as CUDA's caching allocator would, rounded up to 512 bytes; `CpuRecorder.events` has the
sizes as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from vramwise.measure.libraries import library
from vramwise.units import round_up

ALLOCATION_BYTES: Final = 512
"""kMinBlockSize of torch 2.13 c10/core/AllocatorConfig.h: what a small CUDA allocation is rounded up to."""

_PREFIX = "vramwise:"


@dataclass(frozen=True, slots=True)
class Record:
    """From one mark to the next: bytes held at its start and end, the most in between, and what was reserved."""

    label: str
    start: int
    end: int
    peak: int
    reserved: int | None = None
    at_start: Mapping[str, int] = field(default_factory=dict)
    at_peak: Mapping[str, int] = field(default_factory=dict)


class Recorder(Protocol):
    """Marks cut a run into pieces; notes only read what is held."""

    def start(self) -> None: ...

    def mark(self, label: str) -> None: ...

    def note(self, label: str) -> None: ...

    def capture(self, name: str, tensors: Sequence[object]) -> None: ...

    def owning(self, name: str) -> AbstractContextManager[None]: ...

    def finish(self) -> None: ...

    @property
    def records(self) -> list[Record]: ...

    @property
    def notes(self) -> list[tuple[str, int]]: ...

    @property
    def owned(self) -> dict[str, int]: ...


def local(tensor: object) -> Any:
    """A tensor, or the part of a distributed one that this rank holds."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class CudaRecorder:
    """torch.cuda's counters of one device. Marks cost a counter reset, no synchronization."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.records: list[Record] = []
        self.notes: list[tuple[str, int]] = []
        self.owned: dict[str, int] = {}
        self._cuda = library("torch").cuda
        self._open: tuple[str, int] | None = None

    def start(self) -> None:
        self._cuda.reset_peak_memory_stats(self.device)

    def mark(self, label: str) -> None:
        held = int(self._cuda.memory_allocated(self.device))
        self._close(held)
        self._cuda.reset_peak_memory_stats(self.device)
        self._open = label, held

    def note(self, label: str) -> None:
        self.notes.append((label, int(self._cuda.memory_allocated(self.device))))

    def capture(self, name: str, tensors: Sequence[object]) -> None:
        """Counters do not tell tensors apart."""

    @contextmanager
    def owning(self, name: str) -> Iterator[None]:
        """What is allocated inside and still held at its end goes by `name`."""
        before = int(self._cuda.memory_allocated(self.device))
        yield
        self.owned[name] = self.owned.get(name, 0) + int(self._cuda.memory_allocated(self.device)) - before

    def finish(self) -> None:
        self._close(int(self._cuda.memory_allocated(self.device)))
        self._open = None

    def _close(self, held: int) -> None:
        if self._open is None:
            return
        label, start = self._open
        peak = int(self._cuda.max_memory_allocated(self.device))
        reserved = int(self._cuda.max_memory_reserved(self.device))
        self.records.append(Record(label, start, held, peak, reserved))


@dataclass(frozen=True, slots=True)
class Allocation:
    """An allocation (`size` > 0) or a free (`size` < 0) of the CPU allocator."""

    time_ns: int
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The allocation that a limit would have refused: what was asked for, what was held, and in which record."""

    asked: int
    held: int
    label: str


class CpuRecorder:
    """torch's profiler with `profile_memory`: what the CPU allocator gave and took, in order.

    Records count every allocation in whole multiples of `rounding` bytes. With `limit_bytes` they end where an
    allocator of that size would have refused; the run itself goes on, as a CPU has no such limit.
    """

    def __init__(self, rounding: int = ALLOCATION_BYTES, limit_bytes: int | None = None) -> None:
        self.rounding = rounding
        self.limit_bytes = limit_bytes
        self.refused: Refused | None = None
        self.owned: dict[str, int] = {}
        self.records: list[Record] = []
        self.notes: list[tuple[str, int]] = []
        self.events: list[Allocation] = []
        self._captures: dict[str, tuple[str, frozenset[int]]] = {}
        self._profile: Any = None
        self._annotate: Any = None
        self._count = 0

    def start(self) -> None:
        profiler = library("torch.profiler")
        self._annotate = profiler.record_function
        self._profile = profiler.profile(activities=[profiler.ProfilerActivity.CPU], profile_memory=True)
        self._profile.__enter__()

    @property
    def started(self) -> bool:
        return self._profile is not None

    def mark(self, label: str) -> None:
        self._say("mark", label)

    def note(self, label: str) -> None:
        self._say("note", label)

    def capture(self, name: str, tensors: Sequence[object]) -> None:
        """Remember where tensors live now, so that their share of a peak around this moment is known."""
        own = [local(tensor) for tensor in tensors]
        addresses = frozenset(t.untyped_storage().data_ptr() for t in own if t.device.type == "cpu")
        label = f"{name}:{len(self._captures)}"
        self._captures[label] = name, addresses
        self._say("capture", label)

    @contextmanager
    def owning(self, name: str) -> Iterator[None]:
        """What is allocated inside and still held at its end goes by `name`."""
        self._say("own", name)
        yield
        self._say("owned", name)

    def finish(self) -> None:
        self._say("mark", "")
        self._profile.__exit__(None, None, None)
        self._read()

    def _say(self, kind: str, label: str) -> None:
        with self._annotate(f"{_PREFIX}{self._count}:{kind}:{label}"):
            self._count += 1

    def _read(self) -> None:
        """Play the events through, once."""
        found = _events(self._profile.profiler.kineto_results.experimental_event_tree())
        self.events = [event for event in found if isinstance(event, Allocation)]
        lives = _Lives(self.rounding)
        open_mark: tuple[str, int] | None = None
        for event in found:
            if isinstance(event, Allocation):
                size = round_up(max(0, event.size), self.rounding)
                if open_mark and self.limit_bytes is not None and size and lives.held + size > self.limit_bytes:
                    self.refused = Refused(size, lives.held, open_mark[0])
                    lives.close(*open_mark)
                    break
                lives.add(event)
                continue
            kind, label = event
            if kind == "note":
                self.notes.append((label, lives.held))
            elif kind == "capture":
                name, addresses = self._captures[label]
                lives.name_those_at(addresses, name)
            elif kind == "own":
                lives.watch()
            elif kind == "owned":
                self.owned[label] = lives.name_the_watched(label)
            else:
                if open_mark is not None:
                    lives.close(*open_mark)
                open_mark = label, lives.held
                lives.open()
        self.records = lives.records()


def _events(tree: Sequence[Any]) -> list[Allocation | tuple[str, str]]:
    """Allocations and what was said, in the order in which they happened."""
    found: list[tuple[int, int, Allocation | tuple[str, str]]] = []
    waiting = list(tree)
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        kind, fields = event.typed
        if kind.name == "Allocation":
            if str(fields.device).startswith("cpu"):
                row = Allocation(event.start_time_ns, fields.ptr, fields.alloc_size)
                found.append((event.start_time_ns, len(found), row))
        elif event.name.startswith(_PREFIX):
            _, _, what, label = event.name.split(":", 3)
            found.append((event.start_time_ns, len(found), (what, label)))
    found.sort(key=lambda item: item[0])
    return [item for _, _, item in found]


@dataclass(slots=True)
class _Life:
    """One allocation with the name that a capture gave it."""

    size: int
    name: str = ""


class _Lives:
    """What is alive while events pass, and the fullest state between two marks."""

    def __init__(self, rounding: int) -> None:
        self.rounding = rounding
        self.alive: dict[int, _Life] = {}
        self.before: frozenset[int] = frozenset()
        self.held = 0
        self.peak = 0
        self.at_peak: list[_Life] | None = None
        self.at_start: list[_Life] = []
        self.closed: list[tuple[Record, list[_Life], list[_Life]]] = []

    def add(self, event: Allocation) -> None:
        if event.size > 0:
            unseen = self.alive.pop(event.address, None)  # freed where the profiler does not look
            life = self.alive[event.address] = _Life(round_up(event.size, self.rounding))
            self.held += life.size - (unseen.size if unseen else 0)
            if self.held > self.peak:
                self.peak, self.at_peak = self.held, None
        else:
            if self.at_peak is None and self.held == self.peak:
                self.at_peak = list(self.alive.values())  # the fullest state is complete when something goes
            gone = self.alive.pop(event.address, None)
            # What an earlier recorder of this process saw come is freed with its size, but was never alive here.
            self.held -= gone.size if gone else round_up(-event.size, self.rounding)

    def name_those_at(self, addresses: frozenset[int], name: str) -> None:
        for address in addresses:
            if address in self.alive:
                self.alive[address].name = name

    def watch(self) -> None:
        """Remember what lives now."""
        self.before = frozenset(id(life) for life in self.alive.values())

    def name_the_watched(self, name: str) -> int:
        """Name what came since and still lives; the bytes of that name."""
        for life in self.alive.values():
            if not life.name and id(life) not in self.before:
                life.name = name
        return sum(life.size for life in self.alive.values() if life.name == name)

    def open(self) -> None:
        self.peak, self.at_peak = self.held, None
        self.at_start = list(self.alive.values())

    def close(self, label: str, start: int) -> None:
        at_peak = self.at_peak if self.at_peak is not None else list(self.alive.values())
        self.closed.append((Record(label, start, self.held, self.peak), self.at_start, at_peak))

    def records(self) -> list[Record]:
        """Names come from captures that may lie after the peak, so the shares are summed at the end."""
        return [
            replace(record, at_start=_shares(at_start), at_peak=_shares(at_peak))
            for record, at_start, at_peak in self.closed
        ]


def _shares(lives: Sequence[_Life]) -> dict[str, int]:
    found: dict[str, int] = {}
    for life in lives:
        found[life.name] = found.get(life.name, 0) + life.size
    return found


def recorder_for(device: str, limit_bytes: int | None) -> CudaRecorder | CpuRecorder:
    """The recorder of a torch device: `cuda:0` (whose own allocator holds to a limit) or `cpu`."""
    if device.startswith("cuda"):
        return CudaRecorder(int(device.partition(":")[2] or 0))
    return CpuRecorder(limit_bytes=limit_bytes)
