"""What one rank did in one step, as columns: all that the critical path is made of, from a trace or from its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from vramwise.utilization.profiler.collectives import collectives
from vramwise.utilization.profiler.launches import launch_times
from vramwise.utilization.profiler.ranks import Key, keyed
from vramwise.utilization.profiler.recording import ABSENT, STREAM_ONLY
from vramwise.utilization.profiler.steps import cpu_steps

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Integers
    from vramwise.utilization.profiler.recording import Recording


class Span(NamedTuple):
    """A collective of a rank, and how many ranks its group has."""

    start: int
    end: int
    group_size: int | None


class Observed(NamedTuple):
    """GPU events that a step launched and calls that it made, each in the order of time, nanoseconds of its own clock.

    `begin`: when the step began. `collectives`: those of the whole trace. `sequenced`: they carry sequence numbers.
    """

    begin: int
    names: list[str]
    start: Integers
    duration: Integers
    name: Integers
    device: Integers
    stream: Integers
    correlation: Integers
    call_start: Integers
    call_duration: Integers
    call_name: Integers
    call_correlation: Integers
    collectives: Mapping[Key, Span]
    sequenced: bool


def step_lengths(recording: Recording) -> dict[str, int]:
    """The steps of a trace with how long each was on the CPU, nanoseconds."""
    return {mark.name: mark.duration for mark in cpu_steps(recording)}


def observed(recording: Recording, step: str) -> Observed:
    """What a trace says of the step of this name, or of all of it where there is none of this name."""
    from vramwise.utilization.profiler.columns import np

    begin, end = _window(recording, step)
    launched = launch_times(recording.gpu, recording.calls)
    began = np.where(launched == ABSENT, recording.gpu.start, launched)
    rows = np.flatnonzero((recording.gpu.kind != STREAM_ONLY) & (began >= begin) & (began < end))
    rows = rows[np.argsort(recording.gpu.start[rows], kind="stable")]
    made = np.flatnonzero((recording.calls.start >= begin) & (recording.calls.start < end))
    made = made[np.argsort(recording.calls.start[made], kind="stable")]
    gpu, calls = recording.gpu, recording.calls
    found = collectives(recording, recording.gpu)
    sequenced = bool(found) and all(one.sequence is not None for one in found)
    together = {
        key: Span(one.start, one.start + one.duration, one.group_size) for key, one in keyed(found, sequenced).items()
    }
    return Observed(
        begin=begin, names=list(recording.names), collectives=together, sequenced=sequenced,
        start=gpu.start[rows], duration=gpu.duration[rows], name=gpu.name[rows], device=gpu.device[rows],
        stream=gpu.stream[rows], correlation=gpu.correlation[rows], call_start=calls.start[made],
        call_duration=calls.duration[made], call_name=calls.name[made], call_correlation=calls.correlation[made],
    )  # fmt: skip


def _window(recording: Recording, step: str) -> tuple[int, int]:
    for mark in cpu_steps(recording):
        if mark.name == step:
            return mark.start, mark.start + mark.duration
    events, calls = recording.on_gpu, recording.calls
    return int(min([events.start.min(), *calls.start[:].tolist()])), int(events.end.max()) + 1
