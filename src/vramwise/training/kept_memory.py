"""Counters of what a process keeps: torch's reserved memory, and what nvidia-smi shows of it.

Quantities of which some are worked out when they are first read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

from vramwise.records import record
from vramwise.result import Node, Phase, Quantity
from vramwise.site import kept_in_force
from vramwise.training import counters
from vramwise.training.counters import Kinds
from vramwise.training.job import Job
from vramwise.training.layout.parallel import Placement
from vramwise.training.reserved_memory import reserved
from vramwise.training.reserved_memory.loading import most_reserved_by_loading
from vramwise.training.step.moments import Moment


class LazyQuantities(Mapping[str, Quantity]):
    """A table of quantities; each one in `late` is made once it is asked for. `names` is their order.

    Replaying a step takes ten times as long as the rest of an estimate, which often nobody asks for.
    """

    def __init__(
        self, names: Iterable[str], ready: Mapping[str, Quantity], late: Mapping[str, Callable[[], Quantity]]
    ) -> None:
        self._names, self._ready, self._late = tuple(names), dict(ready), {
            name: kept_in_force(one) for name, one in late.items()
        }  # fmt: skip

    def __getitem__(self, name: str) -> Quantity:
        if name in self._late:
            self._ready[name] = self._late[name]()
            del self._late[name]
        return self._ready[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)


@record
class Counted:
    """Every counter but those that hang on reserved memory, and what those are made of.

    `open_allocated` and `by_ratio`: allocated memory, and reserved memory by a calibrated ratio, whose ends are what
    the scenario leaves open and no more; `kinds`: how such estimates are told apart in the table of intervals;
    `certain`: what no counter lies below.
    """

    open_allocated: Quantity
    by_ratio: Quantity
    kinds: Kinds
    certain: int
    quantities: dict[str, Quantity]


@record
class KeptMemory:
    """What hangs on reserved memory. `room`: bytes of the card for torch, within which a run that `fits` keeps.
    `warm_up`: bytes of the block that is allocated before the weights."""

    job: Job
    rank: Placement
    moments: list[Moment]
    outside: list[Node]
    generating: Phase | None
    room: int | None
    fits: bool
    warm_up: int

    def quantities(
        self, counted: Counted, play: reserved.Play | None, limits: Mapping[str, Callable[[], Quantity]]
    ) -> Mapping[str, Quantity]:  # fmt: skip
        """All quantities in order; `limits`, and those that a replay decides, are worked out when they are read."""
        ready = counted.quantities
        allocated = ready["peak_allocated"]
        slack = None if play is None else reserved.slack_of(play, self.job.gpu)
        learned_here = slack is not None and slack.low < slack.high
        kind = counted.kinds.kept

        @cache
        def kept() -> Quantity:
            room = self.room if self.fits else None
            structure = self.job.structure
            loaded = most_reserved_by_loading(self.job.model, structure, self.rank, self.warm_up, room)
            return Quantity(*(max(end, loaded) for end in _ends(of_steps(room))))

        def of_steps(room: int | None) -> Quantity:
            if play is None or slack is None:
                return counted.by_ratio
            found, own = reserved.played(play, room), allocated if learned_here else counted.open_allocated
            return reserved.replayed_reserved(own, self.moments, self.job.train, found, room, play, slack)

        @cache
        def reserved_bytes() -> Quantity:
            return self._kept(
                counters.kept_with_errors("peak_reserved", kept(), kind, counted.certain, is_learned=learned_here),
                allocated,
            )

        late: dict[str, Callable[[], Quantity]] = {
            "peak_reserved": reserved_bytes,
            "nvidia_smi": lambda: self._process(kept(), kind, reserved_bytes(), counted.certain, learned_here),
            **limits,
        }  # fmt: skip
        first = {name: ready[name] for name in ("params", "weights")}
        held = first | {name: self._kept(ready[name], allocated) for name in ("peak_allocated", "peak_active")}
        last = {name: quantity for name, quantity in ready.items() if name == "oom"}
        others = {name: quantity for name, quantity in ready.items() if name not in held and name not in last}
        names = (*held, "peak_reserved", "nvidia_smi", *others, *limits, *last)
        return LazyQuantities(names, held | others | last, late)

    def _kept(self, kept: Quantity, allocated: Quantity) -> Quantity:
        """A counter of torch's: no end is below that of what is allocated, and a run that fits keeps to the room."""
        kept = Quantity(*map(max, _ends(kept), _ends(allocated)))
        return kept if self.room is None or not self.fits else counters.at_most(kept, self.room)

    def _process(self, kept: Quantity, kind: str, reserved_bytes: Quantity, certain: int, is_learned: bool) -> Quantity:
        least = certain + least_of(self.outside)
        process = counters.kept_with_errors(
            "nvidia_smi", counters.plus(kept, *self.outside), kind, least, is_learned=is_learned
        )
        process = Quantity(*map(max, _ends(process), _ends(reserved_bytes)))
        process = Quantity(process.low, process.expected, process.high + self.job.states(self.rank).paged_optimizer)
        if self.room is not None and self.fits:
            process = counters.at_most(process, self.room + sum(node.bytes for node in self.outside))
        if self.generating is None:
            return process
        from vramwise.training.step.other_models import at_least

        return at_least(process, self.generating)


def least_of(outside: Sequence[Node]) -> int:
    """The least that lies outside torch's pool."""
    return sum(int(node.low) for node in outside)


def _ends(quantity: Quantity) -> tuple[float, float, float]:
    return quantity.low, quantity.expected, quantity.high
