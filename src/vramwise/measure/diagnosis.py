"""From an out-of-memory message or a snapshot to the probable cause and the two smallest changes.

Of torch's numbers `torch_causes` makes the cause, of an engine's words the engine's record; other wordings tell it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from vramwise.engines import engine_titled
from vramwise.engines.engine import Shortage
from vramwise.errors import UsageError
from vramwise.measure.causes import KINDS, Kind, kind_of, makes_states
from vramwise.measure.changes import Change, changes_for, two_smallest
from vramwise.measure.messages import OomMessage, failures_in
from vramwise.measure.snapshot import Snapshot, Stack
from vramwise.measure.timeline import Group, Held, Timeline, grouped, held_by, timeline_of
from vramwise.measure.torch_causes import expandable, torch_cause
from vramwise.measure.tracebacks import traceback_before
from vramwise.units import TIB, sized

_MORE_THAN_ANY_MACHINE = 1000 * TIB


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One failure: where, what was asked for, what there was, why, and what to change. Sizes are bytes or None.

    `memory`: which had no room (device, host, pinned host, shared, unified); `limit`: the most that the process may
    take; `elsewhere`: what is held outside this process's torch, where the message does not tell other processes from
    its own CUDA context; `is_probable`: the text tells of an end and not of its reason.
    """

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
    memory: str | None = "device"
    limit: int | None = None
    elsewhere: int | None = None
    is_probable: bool = False

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
    messages = failures_in(text)
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
    cause, changes = _told(message) or _of_torch(
        message, kind, first_step=kind is KINDS["optimizer"] and makes_states(stack)
    )
    if message.tried is not None and message.tried > _MORE_THAN_ANY_MACHINE:
        cause = "more was asked for than any machine has: a dimension of the input or of the model is wrong"
    knows_process = message.process is not None or bool(message.others)
    return Diagnosis(
        message.program, message.device, message.tried, message.free, message.total, message.allocated,
        message.reserved, None, message.process, message.others, stack, kind.name, cause,
        two_smallest(changes, message.shortfall), message.held, memory=message.memory, limit=message.allowed,
        elsewhere=None if knows_process else message.outside, is_probable=message.is_probable,
    )  # fmt: skip


def _of_torch(message: OomMessage, kind: Kind, *, first_step: bool) -> tuple[str, list[Change]]:
    cause, extra = torch_cause(message, kind, first_step=first_step)
    return cause, [*extra, *changes_for({kind.name: None}, kind.name)]


def _told(message: OomMessage) -> tuple[str, list[Change]] | None:
    """Cause and changes where the wording or the engine's record has them; None for what torch's numbers tell."""
    if message.cause:
        return message.cause, [Change(what, None, cost) for what, cost in message.changes]
    if message.program == "torch":
        return None
    known = _shortage(message)
    if known is None:
        return "the memory is in use; the message does not say by what", changes_for({}, "other")
    shortage, sign = known
    return sign.expand(shortage.cause), [Change(sign.expand(what), None, cost) for what, cost in shortage.changes]


def _shortage(message: OomMessage) -> tuple[Shortage, re.Match[str]] | None:
    """What an engine's message means, and where its sign is."""
    engine = engine_titled(message.program)
    found = ((one, re.search(one.sign, message.text)) for one in (engine.shortages if engine is not None else ()))
    return next(((one, sign) for one, sign in found if sign is not None), None)


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
        top = ", ".join(f"{name} {sized(size)}" for name, size in sizes.most_common(2))
        return f"nothing failed in this window; at its peak of {sized(timeline.peak)} the most is {top}", []
    spare = held.fragmentation
    if spare >= asked > held.largest_free:
        return (
            f"fragmentation: {sized(spare)} is reserved and unused, the largest free block is "
            f"{sized(held.largest_free)}{_while(kind)}",
            [Change(expandable(), spare, "none")],
        )  # fmt: skip
    most = sizes.most_common(1)
    what = f"; the most is held by {most[0][0]} ({sized(most[0][1])})" if most else ""
    doing = f"{kind.doing} needs more" if kind.doing else "something asks for more"
    return f"the memory is in use, and {doing}{what}", []


def _while(kind: Kind) -> str:
    return f"; it failed in {kind.doing}" if kind.doing else ""
