"""One pass over a trace's events into a Recording."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import compress
from typing import TYPE_CHECKING, Any

from vramwise.errors import SourceError
from vramwise.units import MIB
from vramwise.utilization.profiler.batches import (
    ABSENT_TEXTS,
    LARGEST,
    NAN,
    fraction,
    fractions,
    moments,
    signed,
    times,
    whole,
    wholes,
)
from vramwise.utilization.profiler.columns import for_one_trace
from vramwise.utilization.profiler.files import shown
from vramwise.utilization.profiler.growing import Growing, Names
from vramwise.utilization.profiler.memory_timeline import MemoryFold, TakesMemory
from vramwise.utilization.profiler.products import PRODUCTS, product_flops
from vramwise.utilization.profiler.recording import (
    ABSENT,
    KERNEL,
    MEMCPY,
    MEMSET,
    STREAM_ONLY,
    CollectiveFacts,
    Collectives,
    CpuCalls,
    GpuEvents,
    Likes,
    ProductCalls,
    Recording,
    StepMark,
)
from vramwise.utilization.profiler.stream import EventStream, stream_of
from vramwise.utilization.profiler.times import nanoseconds
from vramwise.utilization.profiler.trace import TraceFile

if TYPE_CHECKING:
    from vramwise.utilization.profiler.decode import Arguments, Event
    from vramwise.utilization.profiler.readers.rows import RowStream

GPU_KINDS: dict[str | None, int] = {
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
MOST_KEPT = 40_000_000
"""At most some 2 GB; a step of a large model has some 10,000 to 100,000."""
KEPT_OF_A_LIKE = 16
"""So many events take as much memory as a like that only one event has."""
LONGEST_TEXT = MIB
"""Of what a collective states: the ranks of a group of ten thousand take 60 kB."""
MOST_DEVICES = 256
"""Whose allocators one process uses."""


class Collector:
    """Takes events one batch after the other; `recording` is what they amount to.

    `memory_of`: what takes the memory events of a device too, of which there is one for each.
    """

    def __init__(self, memory_of: Callable[[str], TakesMemory] | None = None) -> None:
        self._memory_of = memory_of
        self._folds: list[MemoryFold] = []
        self._names = Names()
        self._texts = Names(LONGEST_TEXT)
        self._gpu = Growing("qqiii")
        self._likes: dict[tuple[Any, ...], int] = {}
        self._calls = Growing("qqii")
        self._products = Growing("iq")
        self._steps: list[StepMark] = []
        self._collectives = Growing("qqi")
        self._facts: dict[CollectiveFacts, int] = {}
        self._memory: dict[str, tuple[TakesMemory, ...]] = {}
        self._whole = True
        self._left_out: Counter[str] = Counter()

    def take(self, events: Iterable[Event]) -> None:
        """Keep what is needed of these events. Raises SourceError for a time that is none, or too many events."""
        alike = len(self._likes) + len(self._facts) + len(self._steps)
        if self.rows + len(self._products) + KEPT_OF_A_LIKE * alike > MOST_KEPT:
            raise SourceError(f"more than {MOST_KEPT:,} GPU events and calls: profile fewer steps")
        on_gpu: list[Event] = []
        calls: list[Event] = []
        products: list[Event] = []
        memory: list[Event] = []
        for event in events:
            group = GROUPS.get(event.cat, _OTHERS)  # one look-up: most events are of a category that nothing needs
            if group == _UNREAD:
                continue
            if group == _GPU:
                on_gpu.append(event)
            elif group == _CALL:
                calls.append(event)
            elif group == _OPERATOR and STEP not in (event.name or ""):
                if event.name in PRODUCTS and event.args is not None:
                    products.append(event)
            elif event.ph == "X":
                self._take_cpu(event, on_gpu)
            elif event.name == MEMORY and event.args is not None:
                memory.append(event)
        if products:
            self._take_products(products)
        if memory:
            self._take_memory(memory)
        if calls and not self._take_calls(calls):
            for event in calls:
                self._take_call(event, on_gpu)
        if on_gpu and not self._take_all_gpu(on_gpu):
            for event in on_gpu:
                self._take_gpu(event)

    @property
    def rows(self) -> int:
        """GPU events and calls so far."""
        return len(self._gpu) + len(self._calls)

    def recording(self, stream: EventStream | RowStream) -> Recording:
        """Everything that was taken, with the document's header."""
        from vramwise.utilization.profiler.columns import np

        *whole_numbers, per_sm, occupancy = zip(*self._likes, strict=True) if self._likes else ((),) * 6
        kinds, names, streams, devices = (np.array(column, dtype=np.int64) for column in whole_numbers)
        alike = Likes(kinds, names, streams, devices, *(np.array(list(map(float, one))) for one in (per_sm, occupancy)))
        return Recording(
            file=stream.name,
            header=stream.header,
            events_read=stream.events_read,
            truncated=stream.truncated,
            names=self._names.known(),
            gpu=GpuEvents(alike, *self._gpu.columns()),
            calls=CpuCalls(*self._calls.columns()),
            products=ProductCalls(*self._products.columns()),
            steps=tuple(self._steps),
            collectives=Collectives(tuple(self._facts), *self._collectives.columns()),
            memory=tuple(fold.timeline() for fold in self._folds),
            whole_microseconds=self._whole,
            left_out=dict(self._left_out + self._names.left_out() + self._texts.left_out()),
        )

    def _take_all_gpu(self, events: list[Event]) -> bool:
        """GPU events together; False, with nothing taken, where one of them is an odd one."""
        args: Any = [event.args for event in events]
        if not all(args):
            return False
        starts, durations = times([event.ts for event in events]), times([event.dur for event in events])
        if starts is None or durations is None:
            return False
        self._whole = self._whole and starts.no_fraction
        streams, devices = wholes([one.stream for one in args]), wholes([one.device for one in args])
        likes = self._places_of_likes(
            [GPU_KINDS.get(event.cat, STREAM_ONLY) for event in events],
            self._names.places([event.name for event in events]), streams, devices,
            fractions([one.blocks_per_sm for one in args]), fractions([one.occupancy for one in args]),
        )  # fmt: skip
        collectives, elements = [one.collective for one in args], [one.in_elements for one in args]
        if collectives.count(None) < len(args) or elements.count(None) < len(args):
            for place, stated in enumerate(zip(collectives, elements, strict=True)):
                if stated != (None, None):
                    self._take_collective(len(self._gpu) + place, events[place])
        self._gpu.extend(
            starts.values, durations.values, wholes([one.correlation for one in args]), _external_ids(args),
            likes,
        )  # fmt: skip
        return True

    def _places_of_likes(self, *columns: list[Any]) -> list[int]:
        """The place of what each event has in common with others: numbers alone, so that each takes little."""
        alike = list(zip(*columns, strict=True))
        found = list(map(self._likes.get, alike))
        if None in found:
            return [self._likes.setdefault(one, len(self._likes)) for one in alike]
        return found  # type: ignore[return-value]

    def _take_gpu(self, event: Event) -> None:
        """An event of a GPU by itself."""
        found = self._times(event)
        if found is None:
            if event.cat in GPU_KINDS:
                self._left_out["GPU events without a time"] += 1
            return
        args: Any = event.args
        self._take_collective(len(self._gpu), event)
        said = (args.stream, args.device, args.correlation) if args else (None,) * 3
        stream, device, correlation = map(whole, said)
        figures = (fraction(args.blocks_per_sm), fraction(args.occupancy)) if args else (NAN, NAN)
        like = GPU_KINDS.get(event.cat, STREAM_ONLY), self._names.place(event.name), stream, device, *figures
        self._gpu.append(
            *found, correlation, _external_id(args) if args else ABSENT, self._likes.setdefault(like, len(self._likes))
        )

    def _take_collective(self, row: int, event: Event) -> None:
        args: Any = event.args
        if args and (args.collective, args.in_elements) != (None, None) and event.cat in GPU_KINDS:
            place = self._facts.setdefault(self._facts_of(args), len(self._facts))
            self._collectives.append(row, whole(args.sequence), place)

    def _facts_of(self, args: Any) -> CollectiveFacts:
        known = {name: whole(getattr(args, name)) for name in ("in_elements", "out_elements", "group_size")}
        sizes = {name: None if value == ABSENT else value for name, value in known.items()}
        group = str(args.group) if isinstance(args.group, str | int) else None
        texts = {"collective": args.collective, "dtype": args.dtype, "members": args.members, "group": group}
        words = {name: self._texts.kept(text) if isinstance(text, str) else None for name, text in texts.items()}
        return CollectiveFacts(**sizes, **words)  # type: ignore[arg-type]

    def _take_calls(self, events: list[Event]) -> bool:
        """Usual calls together, with a correlation and no stream; False, with nothing taken, where one is odd."""
        args: Any = [event.args for event in events]
        if not all(args) or [one.stream for one in args].count(None) < len(args):
            return False
        correlations = [one.correlation for one in args]
        if set(map(type, correlations)) != {int} or min(correlations) < 0 or max(correlations) >= LARGEST:
            return False
        starts, durations = times([event.ts for event in events]), times([event.dur for event in events])
        if starts is None or durations is None:
            return False
        self._whole = self._whole and starts.no_fraction
        names = self._names.places([event.name for event in events])
        self._calls.extend(starts.values, durations.values, names, correlations)
        return True

    def _take_call(self, event: Event, on_gpu: list[Event]) -> None:
        """The usual call with a correlation and no stream; `_take_cpu` takes every other."""
        args = event.args
        if args is None or args.stream is not None or type(args.correlation) is not int:
            self._take_cpu(event, on_gpu)
            return
        found = self._times(event)
        if found is not None and 0 <= args.correlation < LARGEST:
            self._calls.append(*found, self._names.place(event.name), args.correlation)

    def _take_cpu(self, event: Event, on_gpu: list[Event]) -> None:
        args, name = event.args, event.name or ""
        if STEP in name and (found := self._times(event)) is not None:
            self._steps.append(StepMark(self._texts.kept(name), *found, (event.cat or "").startswith("gpu_")))
        if args is None:
            return
        if args.stream is not None and whole(args.stream) >= 0:
            if event.cat:
                on_gpu.append(event)
        elif args.correlation is not None and (correlation := whole(args.correlation)) >= 0:
            found = self._times(event)
            if found is not None:
                self._calls.append(*found, self._names.place(name), correlation)

    def _take_products(self, events: list[Event]) -> None:
        args: Any = [event.args for event in events]
        firsts = map(PRODUCTS.__getitem__, [event.name or "" for event in events])
        flops = list(map(product_flops, [one.input_dims for one in args], firsts))
        called = _external_ids(args)
        if 0 in flops or ABSENT in called:
            kept = [flop > 0 and one != ABSENT for flop, one in zip(flops, called, strict=True)]
            called, flops = list(compress(called, kept)), list(compress(flops, kept))
        self._products.extend(called, flops)

    def _take_memory(self, events: list[Any]) -> None:
        """Events with a time that are not of the host's memory."""
        hosts = wholes([event.args.memory_device_type for event in events])
        if 0 in hosts or set(map(type, [event.ts for event in events])) != {int}:
            kept = [_has_time(event) and host != 0 for event, host in zip(events, hosts, strict=True)]
            events = list(compress(events, kept))
        devices = wholes([event.args.memory_device for event in events])
        for device in dict.fromkeys(devices):
            named = f"GPU {device}"
            if named not in self._memory and len(self._memory) == MOST_DEVICES:
                self._left_out[f"memory events of devices beyond {MOST_DEVICES}"] += devices.count(device)
                continue
            if named not in self._memory:
                self._memory[named] = self._takers(named)
            of_it = events if devices.count(device) == len(events) else [
                event for event, its in zip(events, devices, strict=True) if its == device
            ]  # fmt: skip
            args = [event.args for event in of_it]
            totals = [one.memory_total_allocated for one in args], [one.memory_total_reserved for one in args]
            found = moments([event.ts for event in of_it]), signed([one.memory_bytes for one in args])
            for taker in self._memory[named]:
                taker.add(*found, *map(wholes, totals))

    def _takers(self, device: str) -> tuple[TakesMemory, ...]:
        self._folds.append(MemoryFold(device))
        return (self._folds[-1],) if self._memory_of is None else (self._folds[-1], self._memory_of(device))

    def _times(self, event: Event) -> tuple[int, int] | None:
        start, duration = event.ts, event.dur
        if start is None or duration is None or duration == b"":
            return None
        if type(start) is int:
            return nanoseconds(start), nanoseconds(duration)
        start = bytes(start)
        if start in ABSENT_TEXTS:
            return None
        self._whole = self._whole and b"." not in start
        return nanoseconds(start), nanoseconds(duration)


def read_trace(
    file: TraceFile,
    *,
    partial: bool = False,
    memory_of: Callable[[str], TakesMemory] | None = None,
    alone: bool = False,
) -> Recording:
    """One trace in one pass. Raises SourceError for what cannot be read or is no trace.

    `partial` takes what a truncated file holds; `memory_of` is the Collector's; `alone`: this process reads no other.
    """
    collector = Collector(memory_of)
    stream = stream_of(file, partial=partial)
    try:
        with _no_search_for_cycles():
            for batch in stream.batches():
                collector.take(batch)
    except SourceError as error:
        if str(error).startswith((file.name, shown(file.name))) or not stream.events_read:
            raise
        raise SourceError(f"{file.name}: {error}") from None
    if alone:
        for_one_trace(collector.rows)
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


def _has_time(event: Event) -> bool:
    return event.ts is not None and (type(event.ts) is int or bytes(event.ts) not in ABSENT_TEXTS)


def _external_ids(args: Any) -> list[int]:
    return wholes([one.external_id if one.external_id is not None else one.old_external_id for one in args])


def _external_id(args: Arguments) -> int:
    return whole(args.external_id if args.external_id is not None else args.old_external_id)
