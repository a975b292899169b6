"""How often and how long the kernels of a rank ran, by name: figures that hang on names need no events."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vramwise.utilization.profiler.recording import KERNEL

if TYPE_CHECKING:
    from vramwise.utilization.profiler.recording import GpuEvents, Recording


class Times(NamedTuple):
    """Nanoseconds of some events together, and how many they are."""

    ns: int
    calls: int

    def and_also(self, ns: int, calls: int) -> Times:
        """With so many more."""
        return Times(self.ns + ns, self.calls + calls)


NONE = Times(0, 0)


class Tally(NamedTuple):
    """`kernels` by name in the order of the recording's names, copies and memory sets together; `names` of both."""

    kernels: dict[str, Times]
    copies: Times
    names: frozenset[str]
    streams: frozenset[int]


def tally_of(recording: Recording, events: GpuEvents) -> Tally:
    """Kernels, copies and memory sets by what they have in common, of which a trace has some hundred."""
    from vramwise.utilization.profiler.columns import np

    likes = events.likes
    # bincount adds weights up in doubles, exact to 2^53 ns: 104 days of one kernel
    times = np.bincount(events.like, weights=events.duration, minlength=len(likes.kind)).tolist()
    counts = np.bincount(events.like, minlength=len(likes.kind)).tolist()
    columns = (likes.name.tolist(), likes.kind.tolist(), likes.stream.tolist())
    found = [one for one in zip(*columns, map(int, times), counts, strict=True) if one[-1]]
    kernels: dict[str, Times] = {}
    copies = NONE
    for place, kind, _, ns, count in sorted(found):
        if kind == KERNEL:
            name = recording.names[place]
            kernels[name] = kernels.get(name, NONE).and_also(ns, count)
        else:
            copies = copies.and_also(ns, count)
    names = frozenset(recording.names[place] for place, *_ in found)
    return Tally(kernels, copies, names, frozenset(stream for _, _, stream, *_ in found))
