"""One pass over a trace's events into a Recording."""

from __future__ import annotations

import gc
import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

from vramwise.errors import SourceError
from vramwise.utilization.profiler.files import TraceFile
from vramwise.utilization.profiler.memory_timeline import MemoryFold
from vramwise.utilization.profiler.recording import (
    ABSENT,
    KERNEL,
    MEMCPY,
    MEMSET,
    STREAM_ONLY,
    CollectiveRecord,
    CpuCalls,
    GpuEvents,
    ProductCalls,
    Recording,
    StepMark,
)
from vramwise.utilization.profiler.stream import EventStream, stream_of
from vramwise.utilization.profiler.times import NS_PER_US, nanoseconds

if TYPE_CHECKING:
    from vramwise.utilization.profiler.decode import Arguments, Event
    from vramwise.utilization.profiler.readers.rows import RowStream

GPU_KINDS = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Memset": MEMSET,
}
NEVER_NEEDED = frozenset({"python_function", "ac2g", "async_cpu_to_gpu", "async", "fwdbwd", "Trace", "async_gpu"})
OPERATORS = frozenset({"cpu_op", "Operator"})
"""Only steps (which the old form writes as operators) and PRODUCTS are read of these."""
PRODUCTS = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0, "aten::baddbmm": 1, "aten::_scaled_mm": 0}
"""Matrix products that no other of these calls, with the place of their first factor."""
CALLS = frozenset({"cuda_runtime", "cuda_driver", "Runtime"})
_UNREAD, _GPU, _CALL, _OPERATOR, _OTHERS = range(5)
GROUPS: dict[str | None, int] = {
    **dict.fromkeys(NEVER_NEEDED, _UNREAD),
    **dict.fromkeys(GPU_KINDS, _GPU),
    **dict.fromkeys(CALLS, _CALL),
    **dict.fromkeys(OPERATORS, _OPERATOR),
}
"""What is done with the events of a category."""
STEP = "ProfilerStep"
MEMORY = "[memory]"
GPU_COLUMNS = ("start", "duration", "kind", "name", "stream", "device", "correlation", "num_bytes", "external_id")
ABSENT_TEXTS = (b"", b"null")
MOST_KEPT = 40_000_000
"""At most some 4 GB; a step of a large model has some 10,000 to 100,000."""
LARGEST = 2**62
MOST_US = LARGEST // NS_PER_US


class _Columns:
    """Growing columns of whole numbers, eight bytes a cell; rows lie one behind the other until they are read."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.cells = array("q")
        self.append = self.cells.extend

    def __len__(self) -> int:
        return len(self.cells) // self.count

    def arrays(self) -> list[Any]:
        """Each column by itself; the rows are gone then, so that a trace is not held twice."""
        from vramwise.utilization.profiler.columns import np

        columns = [np.array(self.cells[i :: self.count], dtype=np.int64) for i in range(self.count)]
        self.cells = array("q")
        self.append = self.cells.extend
        return columns


class TakesMemory(Protocol):
    """Takes the memory events of one device: time in ns, the change, and what is allocated and reserved then."""

    def add(self, time: int, change_bytes: int, allocated_bytes: int, reserved_bytes: int) -> None: ...


class Collector:
    """Takes events one batch after the other; `recording` is what they amount to.

    `memory_of`: what takes the memory events of a device too, of which there is one for each.
    """

    def __init__(self, memory_of: Callable[[str], TakesMemory] | None = None) -> None:
        self._memory_of = memory_of
        self._folds: list[MemoryFold] = []
        self._names: dict[str, int] = {}
        self._gpu = _Columns(len(GPU_COLUMNS))
        self._per_sm, self._occupancy = array("d"), array("d")
        self._calls = _Columns(4)
        self._products = _Columns(2)
        self._steps: list[StepMark] = []
        self._collectives: list[CollectiveRecord] = []
        self._memory: dict[str, tuple[TakesMemory, ...]] = {}
        self._whole = True
        self._left_out: dict[str, int] = {}

    def take(self, events: Iterable[Event]) -> None:
        """Keep what is needed of these events. Raises SourceError for a time that is none, or too many events."""
        if len(self._gpu) + len(self._calls) > MOST_KEPT:
            raise SourceError(f"more than {MOST_KEPT:,} GPU events and calls: profile fewer steps")
        kinds = GPU_KINDS
        for event in events:
            group = GROUPS.get(event.cat, _OTHERS)  # one look-up: most events are of a category that nothing needs
            if group == _UNREAD:
                continue
            if group == _GPU:
                self._take_gpu(event, kinds[event.cat])  # type: ignore[index]
            elif group == _CALL:
                self._take_call(event)
            elif group == _OPERATOR and STEP not in (event.name or ""):
                if event.name in PRODUCTS and event.args is not None:
                    self._take_product(PRODUCTS[event.name], event.args)
            elif event.ph == "X":
                self._take_cpu(event)
            elif event.name == MEMORY and event.args is not None:
                self._take_memory(event, event.args)

    def recording(self, stream: EventStream | RowStream) -> Recording:
        """Everything that was taken, with the document's header."""
        from vramwise.utilization.profiler.columns import np

        whole = dict(zip(GPU_COLUMNS, self._gpu.arrays(), strict=True))
        gpu = GpuEvents(**whole, blocks_per_sm=np.array(self._per_sm), occupancy_pct=np.array(self._occupancy))
        return Recording(
            file=stream.name,
            header=stream.header,
            events_read=stream.events_read,
            truncated=stream.truncated,
            names=tuple(self._names),
            gpu=gpu,
            calls=CpuCalls(*self._calls.arrays()),
            products=ProductCalls(*self._products.arrays()),
            steps=tuple(self._steps),
            collectives=tuple(self._collectives),
            memory=tuple(fold.timeline() for fold in self._folds),
            whole_microseconds=self._whole,
            left_out=self._left_out,
        )

    def _take_gpu(self, event: Event, kind: int) -> None:
        times = self._times(event)
        if times is None:
            self._left_out["GPU events without a time"] = self._left_out.get("GPU events without a time", 0) + 1
            return
        args = event.args
        name = self._name(event.name)
        if args is None:
            self._gpu.append((*times, kind, name, *(ABSENT,) * 5))
            self._per_sm.append(float("nan"))
            self._occupancy.append(float("nan"))
            return
        if args.collective is not None or args.in_elements is not None:
            self._collectives.append(_collective(len(self._gpu), args))
        where = _whole(args.stream), _whole(args.device), _whole(args.correlation), _whole(args.num_bytes)
        self._gpu.append((*times, kind, name, *where, _external_id(args)))
        self._per_sm.append(_fraction(args.blocks_per_sm))
        self._occupancy.append(_fraction(args.occupancy))

    def _take_call(self, event: Event) -> None:
        """The usual call with a correlation and no stream; `_take_cpu` takes every other."""
        args = event.args
        if args is None or args.stream is not None or type(args.correlation) is not int:
            self._take_cpu(event)
            return
        times = self._times(event)
        if times is not None and 0 <= args.correlation < LARGEST:
            self._calls.append((*times, self._name(event.name), args.correlation))

    def _take_cpu(self, event: Event) -> None:
        args, name = event.args, event.name or ""
        if STEP in name:
            times = self._times(event)
            if times is not None:
                on_gpu = (event.cat or "").startswith("gpu_")
                self._steps.append(StepMark(name, *times, on_gpu))
        if args is None:
            return
        if args.stream is not None and _whole(args.stream) >= 0:
            times = self._times(event)
            if times is not None and event.cat:
                where = _whole(args.device), _whole(args.correlation), ABSENT, ABSENT
                self._gpu.append((*times, STREAM_ONLY, self._name(name), _whole(args.stream), *where))
                self._per_sm.append(float("nan"))
                self._occupancy.append(float("nan"))
        elif args.correlation is not None and (correlation := _whole(args.correlation)) >= 0:
            times = self._times(event)
            if times is not None:
                self._calls.append((*times, self._name(name), correlation))

    def _take_product(self, first: int, args: Arguments) -> None:
        flops, called = product_flops(args.input_dims, first), _external_id(args)
        if flops and called != ABSENT:
            self._products.append((called, flops))

    def _take_memory(self, event: Event, args: Arguments) -> None:
        start = event.ts if event.ts is None or type(event.ts) is int else bytes(event.ts)
        if start is None or start in ABSENT_TEXTS or _whole(args.memory_device_type) == 0:
            return  # no time, or the host's memory
        device = f"GPU {_whole(args.memory_device)}"
        if device not in self._memory:
            self._memory[device] = self._takers(device)
        totals = _whole(args.memory_total_allocated), _whole(args.memory_total_reserved)
        for one in self._memory[device]:
            one.add(nanoseconds(start), _signed(args.memory_bytes), *totals)

    def _takers(self, device: str) -> tuple[TakesMemory, ...]:
        self._folds.append(MemoryFold(device))
        return (self._folds[-1],) if self._memory_of is None else (self._folds[-1], self._memory_of(device))

    def _times(self, event: Event) -> tuple[int, int] | None:
        start, duration = event.ts, event.dur
        if (
            type(start) is int
            and type(duration) is int
            and -MOST_US < start < MOST_US
            and -MOST_US < duration < MOST_US
        ):
            return start * NS_PER_US, duration * NS_PER_US
        if start is None or duration is None or duration == b"":
            return None
        if type(start) is int:
            return nanoseconds(start), nanoseconds(duration)
        start = bytes(start)
        if start[-4:-3] == b".":  # three decimals, as Kineto writes them
            self._whole = False
        elif start in ABSENT_TEXTS:
            return None
        else:
            self._whole = self._whole and b"." not in start
        return nanoseconds(start), nanoseconds(duration)

    def _name(self, name: str | None) -> int:
        return self._names.setdefault(name or "", len(self._names))


def read_trace(
    file: TraceFile, *, partial: bool = False, memory_of: Callable[[str], TakesMemory] | None = None
) -> Recording:
    """One trace in one pass. Raises SourceError for what cannot be read or is no trace.

    `partial` takes what a truncated file holds; `memory_of` is the Collector's.
    """
    collector = Collector(memory_of)
    stream = stream_of(file, partial=partial)
    try:
        with _no_search_for_cycles():
            for batch in stream.batches():
                collector.take(batch)
    except SourceError as error:
        if str(error).startswith(file.name) or not stream.events_read:
            raise
        raise SourceError(f"{file.name}: {error}") from None
    return collector.recording(stream)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Events are trees, freed as soon as a batch is done; searching them for cycles takes a tenth of the time."""
    searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searched:
            gc.enable()


def product_flops(dims: Any, first: int) -> int:
    """2 m k n of a product by its factors' shapes, times the batch where they have one; 0 for other shapes."""
    try:
        shapes: Any = dims if isinstance(dims, list) else json.loads(bytes(dims))
        *batch, m, k = shapes[first]
        *_, other_k, n = shapes[first + 1]
        flops = 2 * prod([*batch, m, k, n])
    except (TypeError, ValueError, IndexError, RecursionError):
        return 0
    return flops if k == other_k and isinstance(flops, int) and 0 < flops < LARGEST else 0


def _external_id(args: Arguments) -> int:
    return _whole(args.external_id if args.external_id is not None else args.old_external_id)


def _whole(value: object) -> int:
    """A whole number that is not negative; ABSENT for anything else (ROCm writes some as text)."""
    if type(value) is int and 0 <= value < LARGEST:
        return value
    if value is None:
        return ABSENT
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
        return value if value < LARGEST else ABSENT
    return ABSENT


def _signed(value: object) -> int:
    return value if isinstance(value, int) and abs(value) < LARGEST else 0


def _fraction(value: object) -> float:
    if type(value) is float:
        return value
    if isinstance(value, str):
        try:
            value = float(value) if len(value) < 40 else None
        except ValueError:
            value = None
    return float(value) if isinstance(value, int | float) and abs(value) < LARGEST else float("nan")


def _collective(row: int, args: Arguments) -> CollectiveRecord:
    known = {name: _whole(getattr(args, name)) for name in ("in_elements", "out_elements", "group_size", "sequence")}
    sizes = {name: None if value == ABSENT else value for name, value in known.items()}
    words = {
        name: value if isinstance(value := getattr(args, name), str) else None
        for name in ("collective", "dtype", "members")
    }
    group = args.group if isinstance(args.group, str | int) else None
    return CollectiveRecord(row=row, group=None if group is None else str(group), **sizes, **words)  # type: ignore[arg-type]
