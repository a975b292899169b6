"""The largest micro-batch and the longest sequence with which a training step fits its card.

A size fits where the answer for it says so: the rank that needs most has room for its tensors and, where the step is
replayed, for the segments that they lie in. A limit fits and the next size does not (sequences: the next that
parallelism can divide). Segments break up otherwise at every size, so that one beyond the limit may fit again: what is
found lies by bisection between the most that fits by its tensors and a size below that fits, and it is never below
a size that was asked for and fits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from vramwise.largest import largest_within
from vramwise.memo import Memo
from vramwise.models.lengths import rows_of_positions
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.result import Quantity
from vramwise.training.exchange.communication import buffers
from vramwise.training.job import moments_at
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import model_states
from vramwise.training.recipe.images import image_tokens_of
from vramwise.training.recipe.settings import frozen_units_keep_inputs
from vramwise.training.reserved_memory import reserved
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.moments import Moment
from vramwise.training.zero3 import NO_LAG, Lag

if TYPE_CHECKING:
    from vramwise.hardware import Gpu

MOST_SEQUENCES = 1_000_000
MOST_TOKENS = 100_000_000
_FIRST_STEP_DOWN = 64  # a step keeps some per cent in holes: one part in so many below the most is tried first

Fits = Callable[[int], bool]


@record
class Room:
    """What the limits of a scenario depend on: everything but the sizes that were asked for.

    `usable`: bytes of the card; `outside`: what of them a process has outside torch; `workspace`: of the libraries;
    `generating`: bytes of the moment in which a rollout engine is awake; `replays`: whether the step can be replayed;
    `lag_at`: of the card behind its host on a rank, at a micro-batch and a sequence; it follows from `links` besides.
    `warm_up`: bytes of the block before the weights.
    """

    model: Model
    structure: ResolvedTrain
    ranks: tuple[Placement, ...]
    accumulates: bool
    usable: int
    outside: int
    workspace: int
    generating: int
    replays: bool
    links: tuple[Gpu | None, int, float | None]
    warm_up: int = 0
    lag_at: Callable[[Placement, int, int], Lag] = field(default=lambda rank, batch, sequence: NO_LAG, compare=False)

    def need(self, batch: int, sequence: int) -> int:
        """Expected bytes with room for all tensors, on the rank that needs most."""
        return self._need(*self._worst(batch, sequence))

    def fits(self, batch: int, sequence: int) -> bool:
        """Whether tensors have room, and their segments too."""
        rank, moments, allocated = self._worst(batch, sequence)
        if self._need(rank, moments, allocated) > self.usable:
            return False
        room = self.usable - self.outside
        if not self.replays or not reserved.is_nearly_full(allocated, room):
            return True
        tokens = self._tokens(sequence)
        sizes = batch, tokens, self.accumulates, self.workspace, rank
        play = reserved.Play(
            self.model, self.structure.at_tokens(batch * tokens), *sizes,
            lag=self.lag_at(rank, batch, sequence), warm_up=self.warm_up,
        )  # fmt: skip
        return reserved.out_of_room(play, Quantity.exact(allocated), room) is None

    def _need(self, rank: Placement, moments: list[Moment], allocated: int) -> int:
        if frozen_units_keep_inputs(self.structure):
            states = model_states(self.model, self.structure, rank)
            exchanged = buffers(self.model, self.structure, rank)
            kept = reserved.reserved(Quantity.exact(allocated), moments, self.structure, rank, states, exchanged)
            allocated = int(kept.expected)
        return max(allocated + self.outside, self.generating)

    def _worst(self, batch: int, sequence: int) -> tuple[Placement, list[Moment], int]:
        """The rank with the largest moment, its moments, and bytes of that moment with the workspace."""
        tokens = self._tokens(sequence)
        structure = self.structure.at_tokens(batch * tokens)
        found = [
            (rank, moments_at(self.model, structure, rank, batch, tokens, self.accumulates)) for rank in self.ranks
        ]
        peaks = [max(moment.total for moment in moments) for _, moments in found]
        worst = max(range(len(found)), key=peaks.__getitem__)
        return *found[worst], peaks[worst] + self.workspace

    def _tokens(self, sequence: int) -> int:
        return -(-sequence // self.structure.context_parallel_size)


def largest_batch(room: Room, batch: int, sequence: int) -> int:
    """The most sequences of this length in a micro-batch, 0 where one does not fit; `batch` was asked for."""
    return _largest(room, lambda n: (n, sequence), ("batch", sequence), MOST_SEQUENCES, batch)


def longest_sequence(room: Room, batch: int, sequence: int) -> int:
    """The most tokens in each sequence of this micro-batch, 0 where none fit; `sequence` was asked for.

    No more than tables of positions have rows for, no fewer than images take, and a multiple of what splits it.
    """
    unit, least = sequence_unit(room.structure), image_tokens_of(room.structure, room.model)
    rows = rows_of_positions(room.model)
    most = (MOST_TOKENS if rows is None else rows) // unit
    asked = sequence // unit if sequence % unit == 0 else 0
    found = unit * _largest(room, lambda n: (batch, max(n * unit, least)), ("sequence", batch), most, asked)
    return found if found >= least else 0


def sequence_unit(train: ResolvedTrain) -> int:
    """What a sequence's length has to be a multiple of.

    Each rank of context parallelism has an early and a late piece of it, and sequence parallelism cuts these again
    (Megatron-LM core 0.14 training/arguments.py: "a multiple of 2 * context-parallel-size"; torchtitan
    distributed/parallel_dims.py `seq_len_divisor`).
    """
    pieces = 2 * train.context_parallel_size if train.context_parallel_size > 1 else 1
    return pieces * (train.tensor_parallel_size if train.sequence_parallel else 1)


_known: Memo[tuple[Room, tuple[str, int]], int] = Memo(4096)


def _largest(
    room: Room, sized: Callable[[int], tuple[int, int]], key: tuple[str, int], most: int, asked: int
) -> int:  # fmt: skip
    """The largest n up to `most` whose (micro-batch, sequence) fits; kept for all sizes that are asked for."""

    def need(n: int) -> int:
        return room.need(*sized(n))

    def fits(n: int) -> bool:
        return room.fits(*sized(n))

    def search() -> int:
        by_tensors = largest_within(need, room.usable, most, (asked, need(asked)) if 1 <= asked <= most else None)
        return last_that_fits(fits, 0, by_tensors)

    if most < 1:
        return 0
    found = _known.get((room, key), search)
    if found < asked <= most and fits(asked):
        by_tensors = largest_within(need, room.usable, most, (asked, need(asked)))
        return last_that_fits(fits, asked, by_tensors)
    return found


def last_that_fits(fits: Fits, low: int, most: int) -> int:
    """A size from `low`, which fits, up to `most` that fits while the next one does not; `most` where it fits.

    Steps down from `most` that double find one that fits; bisection then finds the edge above it.
    """
    if most <= low or fits(most):
        return most
    high, step = most, max(1, (most - low) // _FIRST_STEP_DOWN)
    while high - step > low and not fits(high - step):
        high, step = high - step, 2 * step
    low = max(low, high - step)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
