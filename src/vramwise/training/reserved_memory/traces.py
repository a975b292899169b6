"""In which order a step takes and frees blocks, without sizes: recorded once, played at every size.

Who holds what, and until when, is the same for every micro-batch and every length for which a model runs the same
operations; sizes alone differ. A replay on a recorder writes that order down, part by part; `play.py` evaluates its
sizes at one micro-batch and length and goes through it. Where an order hangs on sizes none is recorded
(`has_one_order`).

Blocks of the allocator that several holders share, as Python's and autograd's references do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from vramwise.models.allocator import Block, CachingAllocator
from vramwise.models.autograd.size import Axes, Dim, Size, Sized, evaluate
from vramwise.records import record
from vramwise.training.recipe.settings import frozen_units_keep_inputs
from vramwise.training.resolved import ResolvedTrain


class Held:
    """An allocated block and how many refer to it."""

    __slots__ = ("block", "holders")

    def __init__(self, block: Block, holders: int = 1) -> None:
        self.block, self.holders = block, holders


class Memory(CachingAllocator):
    """The allocator, with blocks that are freed when nobody holds them any more."""

    def hold(self, size: int, stream: int = 0) -> Held:
        return Held(self.take(size, stream))

    def some(self, *sizes: int, stream: int = 0) -> list[Held]:
        """A block for each size that is not nothing."""
        return [Held(self.take(size, stream)) for size in sizes if size]

    def drop(self, held: Held) -> None:
        assert held.holders > 0, "nobody lets go of a block twice"
        held.holders -= 1
        if held.holders == 0:
            self.free(held.block)

    def drop_all(self, held: Iterable[Held]) -> None:
        for one in held:
            self.drop(one)

    def drop_later(self, held: Iterable[Held]) -> None:
        """Let go of blocks of one holder that another stream still uses."""
        for one in held:
            assert one.holders == 1, "nobody lets go of a block twice"
            one.holders = 0
            self.free_later(one.block)


class Alone:
    """A rank that has everything: gradients stay as they are made."""

    is_sharded = False
    adds_from_start = False
    """Gradients are added to ones that are there before the first step, and go at once."""
    reduces = True
    """Whether the micro-batch that runs reduces its gradients (not under `no_sync`, but for a step's last)."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.gradients: list[Held] = []

    def load(self) -> bool:
        """Allocate the rank's part of the weights; False where nothing is cut."""
        return False

    def prepare(self) -> None:
        """What wrapping the loaded model allocates."""

    def before_forward(self, index: int) -> None: ...

    def after_forward(self, index: int) -> None: ...

    def forward_over(self) -> None: ...

    def before_recomputing(self, index: int) -> None: ...

    def before_backward(self, index: int) -> None: ...

    def after_backward(self, index: int, gradients: list[Held]) -> None:
        self.gradients += gradients

    def backward_over(self) -> None: ...

    def step(self) -> bool:
        """The optimizer's step, where it is not tensor by tensor; False where it is."""
        return False

    def zeroed(self) -> None:
        """Gradients are set to None."""
        self.memory.drop_all(self.gradients)
        self.gradients = []


OF_STEPS, OF_EVALUATIONS = 0, 1
"""Whose rows the axes of a size are."""

FREED, FREED_LATER, JOINED, PEAK_FORGOTTEN, EMPTIED = -1, -2, -3, -4, -5
"""What is done with a slot's block, where it is not taken; the last two are done with none."""


def has_one_order(train: ResolvedTrain) -> bool:
    """Whether no order hangs on sizes: DeepSpeed fills buckets by them, hooks of frozen units copy a block as large as
    one that is there, and segments that grow are another allocator."""
    return not train.zero_stage and not train.expandable_segments and not frozen_units_keep_inputs(train)


@record(frozen=False)
class Part:
    """A piece of a trace: what is done, in order, and to which slot.

    `orders`: the place of a block's size among those of the trace where it is taken, else what is done with it.
    A slot has one block at a time and is taken again when that is gone.
    """

    orders: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)


class Recorder(Memory):
    """Takes everything down and allocates nothing: a block's number is its slot.

    `sizes`: the place of each with its stream and the rows that it is of; `nothing` and `something`: polynomials that
    were nothing, so that no block was taken for them, and those that were not, with their rows; `empty`: slots that
    nothing is in, the next one last. `rows`: those that run, a step's or an evaluation's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.part = Part()
        self.rows = OF_STEPS
        self.sizes: dict[tuple[Dim, int, int], int] = {}
        self.nothing: dict[tuple[Size, int], None] = {}
        self.something: dict[tuple[Size, int], None] = {}
        self._blocks: list[Block] = []
        self.empty: list[Block] = []

    @property
    def num_slots(self) -> int:
        return len(self._blocks)

    def cut(self) -> Part:
        """What was taken down since the last cut. The next part begins with the lowest slot that is empty: parts that
        are done alike read alike."""
        part, self.part = self.part, Part()
        self.empty.sort(key=lambda block: -block.number)
        return part

    def place(self, size: int, stream: int = 0) -> int:
        """The place of these bytes among the sizes."""
        what: Dim = size.size if isinstance(size, Sized) else size
        return self.sizes.setdefault((what, stream, self.rows), len(self.sizes))

    def take(self, size: int, stream: int = 0) -> Block:
        block = self.empty.pop() if self.empty else self.further_slot()
        self._note(self.place(size, stream), block.number)
        return block

    def further_slot(self) -> Block:
        """A slot that nothing was in so far."""
        block = Block(0, len(self._blocks), [])
        block.used = True
        self._blocks.append(block)
        return block

    def some(self, *sizes: int, stream: int = 0) -> list[Held]:
        for size in sizes:
            if isinstance(size, Sized):
                (self.something if size else self.nothing)[size.size, self.rows] = None
        return super().some(*sizes, stream=stream)

    def free(self, block: Block) -> None:
        self._gone(block, FREED)

    def free_later(self, block: Block) -> None:
        super().free_later(block)
        self._note(FREED_LATER, block.number)

    def forget_peak(self) -> None:
        self._note(PEAK_FORGOTTEN, 0)

    def empty_cache(self) -> None:
        self._note(EMPTIED, 0)

    def holds_at(self, axes: Axes, of_evaluations: Axes) -> bool:
        """Whether the same blocks are taken at this micro-batch and length."""
        of_rows = axes, of_evaluations
        return not any(evaluate(size, of_rows[rows]) for size, rows in self.nothing) and all(
            evaluate(size, of_rows[rows]) for size, rows in self.something
        )

    def _join(self, block: Block) -> None:
        self._gone(block, JOINED)

    def _gone(self, block: Block, order: int) -> None:
        self._note(order, block.number)
        self.empty.append(block)

    def _note(self, order: int, slot: int) -> None:
        self.part.orders.append(order)
        self.part.slots.append(slot)
