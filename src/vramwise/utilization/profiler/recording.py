"""What is kept of a trace: GPU events and launches as columns of numbers, and the few events that name steps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Floats, Integers
    from vramwise.utilization.profiler.memory_timeline import MemoryTimeline

KERNEL, MEMCPY, MEMSET, STREAM_ONLY = range(4)
"""Kinds of GPU events; the last carries a stream but is of another category (synchronization, annotations)."""
ABSENT = -1


class Likes(NamedTuple):
    """What many GPU events say alike, once each: columns by the place of such a like."""

    kind: Integers
    name: Integers
    stream: Integers
    device: Integers
    blocks_per_sm: Floats
    occupancy_pct: Floats


class GpuEvents:
    """GPU events in the order of the file; times in nanoseconds, `ABSENT` (NaN) where the trace says nothing.

    A trace has hundreds of thousands of events and some hundred likes: `like` says which of them each event is, and
    their columns are made when they are asked for.
    """

    __slots__ = ("correlation", "duration", "external_id", "like", "likes", "start")

    def __init__(
        self,
        likes: Likes,
        start: Integers,
        duration: Integers,
        correlation: Integers,
        external_id: Integers,
        like: Integers,
    ) -> None:
        self.likes = likes
        self.start = start
        self.duration = duration
        self.correlation = correlation
        self.external_id = external_id
        self.like = like

    @property
    def end(self) -> Integers:
        """When each event ended."""
        return self.start + self.duration

    @property
    def kind(self) -> Integers:
        """KERNEL, MEMCPY, MEMSET or STREAM_ONLY."""
        return self.likes.kind[self.like]

    @property
    def name(self) -> Integers:
        """The place of each name among the recording's."""
        return self.likes.name[self.like]

    @property
    def stream(self) -> Integers:
        """The stream of each."""
        return self.likes.stream[self.like]

    @property
    def device(self) -> Integers:
        """The GPU of each."""
        return self.likes.device[self.like]

    @property
    def blocks_per_sm(self) -> Floats:
        """Blocks by multiprocessor of each kernel."""
        return self.likes.blocks_per_sm[self.like]

    @property
    def occupancy_pct(self) -> Floats:
        """The achieved occupancy that the profiler estimated of each kernel."""
        return self.likes.occupancy_pct[self.like]

    def __len__(self) -> int:
        return len(self.start)

    def where_like(self, chosen: Any) -> GpuEvents:
        """The events of the likes that a mask chooses."""
        return self if chosen.all() else self.where(chosen[self.like])

    def where(self, chosen: Any) -> GpuEvents:
        """The events that a mask or an index chooses; these themselves, and no second copy, where a mask has all."""
        if chosen.dtype == bool and chosen.all():
            return self
        return GpuEvents(
            self.likes,
            *(column[chosen] for column in (self.start, self.duration, self.correlation, self.external_id, self.like)),
        )


class CpuCalls(NamedTuple):
    """Runtime and driver calls that carry a correlation (launches, copies, synchronizations)."""

    start: Integers
    duration: Integers
    name: Integers
    correlation: Integers


class ProductCalls(NamedTuple):
    """Matrix products whose operands' shapes the trace has (`record_shapes=True`): external id and FLOPs of each."""

    external_id: Integers
    flops: Integers


class StepMark(NamedTuple):
    """One `ProfilerStep#n` annotation; `on_gpu` when it is the copy on a GPU track."""

    name: str
    start: int
    duration: int
    on_gpu: bool


class CollectiveFacts(NamedTuple):
    """What communication kernels say about their collective."""

    collective: str | None
    in_elements: int | None
    out_elements: int | None
    group_size: int | None
    dtype: str | None
    group: str | None
    members: str | None


class Collectives(NamedTuple):
    """Which GPU events say something of a collective: their rows, sequence numbers, and places among the `facts`."""

    facts: tuple[CollectiveFacts, ...]
    row: Integers
    sequence: Integers
    place: Integers


class Recording(NamedTuple):
    """One rank's trace."""

    file: str
    header: dict[str, object]
    events_read: int
    truncated: bool
    names: tuple[str, ...]
    gpu: GpuEvents
    calls: CpuCalls
    products: ProductCalls
    steps: tuple[StepMark, ...]
    collectives: Collectives
    memory: tuple[MemoryTimeline, ...]
    whole_microseconds: bool
    left_out: dict[str, int]

    @property
    def rank(self) -> int | None:
        """The rank that the trace itself states."""
        info = self.header.get("distributedInfo")
        rank = info.get("rank") if isinstance(info, dict) else None
        return rank if isinstance(rank, int) and not isinstance(rank, bool) else None

    @property
    def named_rank(self) -> str | None:
        """The rank that the trace states, else the one in its file's name (`rank_3.json`)."""
        named = re.search(r"(?:rank|worker)[-_ ]?(\d{1,18})", self.file.rsplit("/", 1)[-1])
        stated = self.rank if self.rank is not None else named.group(1) if named else None
        return None if stated is None else str(int(stated))

    @property
    def world_size(self) -> int | None:
        """The number of ranks that the trace states."""
        info = self.header.get("distributedInfo")
        size = info.get("world_size") if isinstance(info, dict) else None
        return size if isinstance(size, int) and not isinstance(size, bool) else None

    @property
    def gpu_name(self) -> str | None:
        """The name of the card on which the events ran; None where the trace does not say."""
        properties = self.header.get("deviceProperties")
        devices = [entry for entry in properties if isinstance(entry, dict)] if isinstance(properties, list) else []
        used = set(self.gpu.likes.device.tolist())
        named = {str(entry.get("name") or "").strip() for entry in devices if entry.get("id") in used}
        named = (named or {str(entry.get("name") or "").strip() for entry in devices}) - {""}
        return named.pop() if len(named) == 1 else None

    @property
    def on_gpu(self) -> GpuEvents:
        """Kernels, copies and memory sets: the events of which every figure but HTA's is made."""
        return self.gpu.where_like(self.gpu.likes.kind != STREAM_ONLY)
