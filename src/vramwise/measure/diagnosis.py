"""From an out-of-memory message or a snapshot to the probable cause and the two smallest changes.

| sign | cause |
|---|---|
| the optimizer makes its states (its first step) | optimizer states: one tensor of many to come |
| reserved − allocated (or free memory in segments) is at least what was asked for | fragmentation |
| the same together with what is free | fragmentation: expandable segments join the two |
| memory of other processes is at least what was lacking | another process |
| what was asked for is larger than the card | one tensor is too large |
| a limit below the card's size | the limit (`set_per_process_memory_fraction`) |
| none of these | the kind of memory that the failing line asks for |
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from vramwise.engines import Shortage, engine_titled
from vramwise.errors import UsageError
from vramwise.measure.causes import KINDS, UNKNOWN, Kind, kind_of, makes_states
from vramwise.measure.changes import Change, changes_for, two_smallest
from vramwise.measure.messages import OomMessage, messages_in
from vramwise.measure.snapshot import Snapshot, Stack
from vramwise.measure.timeline import Group, Held, Timeline, grouped, held_by, timeline_of
from vramwise.measure.tracebacks import traceback_before
from vramwise.units import format_bytes

_EXPANDABLE = "PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before torch 2.9)"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One failure: where, what was asked for, what there was, why, and what to change. Sizes are bytes or None."""

    program: str
    device: str
    asked: int | None
    free: int | None
    total: int | None
    allocated: int | None
    reserved: int | None
    largest_free_block: int | None
    process: int | None
    others: tuple[tuple[str, int], ...]
    stack: Stack
    kind: str
    cause: str
    changes: tuple[Change, ...]
    holdings: tuple[tuple[str, int], ...] = ()
    largest: tuple[Group, ...] = ()
    is_failure: bool = True

    @property
    def fragmentation(self) -> int | None:
        """Reserved − allocated."""
        return None if self.reserved is None or self.allocated is None else max(0, self.reserved - self.allocated)

    @property
    def outside_torch(self) -> int | None:
        """The process beyond what torch's allocator reserved: CUDA context, libraries, NCCL."""
        if self.process is None or self.reserved is None:
            return None
        return max(0, self.process - self.reserved)


def diagnose_text(text: str) -> list[Diagnosis]:
    """One diagnosis for every out-of-memory message of a log. Raises UsageError where there is none."""
    messages = messages_in(text)
    if not messages:
        raise UsageError(
            'no out-of-memory message found: give the log or traceback that holds it ("Tried to allocate …"), '
            "or the pickle of torch.cuda.memory._dump_snapshot"
        )
    return [_of_message(message, text) for message in messages]


def diagnose_snapshot(snapshot: Snapshot) -> list[Diagnosis]:
    """One diagnosis for every device that a snapshot tells of. Raises UsageError for an empty one."""
    if not snapshot.devices:
        raise UsageError("the snapshot is empty: call torch.cuda.memory._record_memory_history() before the run")
    return [_of_device(snapshot, device) for device in snapshot.devices]


def _of_message(message: OomMessage, text: str) -> Diagnosis:
    trace = traceback_before(text, message.position) if message.program == "torch" else None
    stack = trace.stack if trace else ()
    kind = kind_of(stack, trace.code if trace else ())
    cause, extra = _cause(message, kind, first_step=kind is KINDS["optimizer"] and makes_states(stack))
    kinds = changes_for({kind.name: None}, kind.name) if message.program == "torch" else _engine_changes(message)
    if message.program in ("NumPy", "XLA", "CUDA") or message.device == "MPS":
        kinds = changes_for({}, "other")
    if message.device == "CPU":
        kinds = [Change("a smaller tensor, or a machine with more RAM", None, "none"), *kinds]
    return Diagnosis(
        message.program, message.device, message.tried, message.free, message.total, message.allocated,
        message.reserved, None, message.process, message.others, stack, kind.name, cause,
        two_smallest([*extra, *kinds], message.shortfall),
    )  # fmt: skip


def _cause(message: OomMessage, kind: Kind, *, first_step: bool) -> tuple[str, list[Change]]:
    """The cause in a sentence, and the changes that it alone suggests."""
    tried, short = message.tried, message.shortfall
    spare = message.unallocated
    elsewhere = sum(size for _, size in message.others)
    if message.total and message.free is not None and message.process is not None and not message.others:
        elsewhere = max(0, message.total - message.free - message.process)
    if message.program != "torch":
        return _engine_cause(message), []
    if tried is not None and message.total is not None and tried > message.total:
        return f"one tensor is larger than the whole card{_while(kind)}", []
    if first_step:
        return f"the optimizer makes its states in its first step: one tensor of many to come ({kind.name})", []
    if tried is not None and spare is not None and spare >= tried:
        apart = f"in pieces smaller than {_size(tried)}"
        return _fragmentation(message, spare, apart, kind)
    if short and elsewhere >= short:
        who = ", ".join(f"process {name}" for name, _ in message.others) or "other processes"
        return f"{who} {'holds' if len(message.others) == 1 else 'hold'} {_size(elsewhere)} of the card", [
            Change(f"end {who}, or take another card", elsewhere, "none")
        ]
    if message.allowed is not None and message.total is not None and message.allowed < message.total:
        change = Change("a larger limit (set_per_process_memory_fraction)", message.total - message.allowed, "none")
        return f"the process may take only {_size(message.allowed)} of the card{_while(kind)}", [change]
    free = message.free or 0
    if tried is not None and spare and spare + free >= tried:
        apart = f"apart from the {_size(free)} that is free; {_size(tried)} fits into both together"
        return _fragmentation(message, spare, apart, kind)
    if kind is UNKNOWN:
        return "the memory is in use; the report does not say by what (give the whole traceback or a snapshot)", []
    return f"the memory is in use, and {kind.doing} needs more ({kind.name})", []


def _fragmentation(message: OomMessage, spare: int, apart: str, kind: Kind) -> tuple[str, list[Change]]:
    cause = f"fragmentation: {_size(spare)} is reserved and unused, but {apart}{_while(kind)}"
    return cause, [Change(_expandable(message), spare, "none")]


def _shortage(message: OomMessage) -> tuple[Shortage, re.Match[str]] | None:
    """What an engine's message means, and where its sign is."""
    engine = engine_titled(message.program)
    found = ((one, re.search(one.sign, message.text)) for one in (engine.shortages if engine is not None else ()))
    return next(((one, sign) for one, sign in found if sign is not None), None)


def _engine_cause(message: OomMessage) -> str:
    known = _shortage(message)
    return known[0].cause if known is not None else "the memory is in use; the message does not say by what"


def _engine_changes(message: OomMessage) -> list[Change]:
    known = _shortage(message)
    if known is None:
        return []
    shortage, sign = known
    return [Change(sign.expand(what), None, cost) for what, cost in shortage.changes]


def _of_device(snapshot: Snapshot, device: int) -> Diagnosis:
    held = held_by(snapshot.held_by(device))
    timeline = timeline_of(snapshot, device)
    failure = next((event for event in reversed(snapshot.history(device)) if event.action == "oom"), None)
    at = _index_of_interest(snapshot, device, timeline)
    lives = timeline.alive_at(at)
    sizes: Counter[str] = Counter()
    for group in (groups := grouped(lives)):
        sizes[kind_of(group.stack).name] += group.size
    stack = failure.stack if failure else max(lives, key=lambda life: life.size).stack if lives else ()
    kind = kind_of(stack)
    asked = failure.size if failure else None
    free = failure.free_bytes if failure else None
    cause, extra = _snapshot_cause(held, timeline, asked, kind, sizes)
    wanted = kind.name if failure else (sizes.most_common(1)[0][0] if sizes else "other")
    changes = two_smallest(
        [*extra, *changes_for(sizes, wanted)], None if asked is None else max(0, asked - (free or 0))
    )
    return Diagnosis(
        "torch", f"GPU {device}", asked, free, None, held.allocated, held.reserved, held.largest_free, None, (), stack,
        kind.name, cause, changes, tuple(sizes.most_common()), tuple(groups), failure is not None,
    )  # fmt: skip


def _index_of_interest(snapshot: Snapshot, device: int, timeline: Timeline) -> int:
    """The failure, or the peak where nothing failed."""
    for index, event in reversed(list(enumerate(snapshot.history(device), 1))):
        if event.action == "oom":
            return index
    return timeline.peak_at


def _snapshot_cause(
    held: Held, timeline: Timeline, asked: int | None, kind: Kind, sizes: Counter[str]
) -> tuple[str, list[Change]]:
    if asked is None:
        top = ", ".join(f"{name} {_size(size)}" for name, size in sizes.most_common(2))
        return f"nothing failed in this window; at its peak of {_size(timeline.peak)} the most is {top}", []
    spare = held.fragmentation
    if spare >= asked > held.largest_free:
        return (
            f"fragmentation: {_size(spare)} is reserved and unused, the largest free block is "
            f"{_size(held.largest_free)}{_while(kind)}",
            [Change(_EXPANDABLE, spare, "none")],
        )  # fmt: skip
    most = sizes.most_common(1)
    what = f"; the most is held by {most[0][0]} ({_size(most[0][1])})" if most else ""
    doing = f"{kind.doing} needs more" if kind.doing else "something asks for more"
    return f"the memory is in use, and {doing}{what}", []


def _expandable(message: OomMessage) -> str:
    if "PYTORCH_CUDA_ALLOC_CONF" in message.text:
        return "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (max_split_size_mb:512 before torch 2.1)"
    return _EXPANDABLE


def _while(kind: Kind) -> str:
    return f"; it failed in {kind.doing}" if kind.doing else ""


def _size(size: int) -> str:
    return format_bytes(size, "auto")
