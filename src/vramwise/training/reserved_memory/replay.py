"""What streams have reserved after a training step's first steps: for which settings it is replayed, and the replay.

A replay by the order in which a step takes and frees blocks: recorded for one kind of step, played at every size.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from vramwise.frameworks import framework_of
from vramwise.memo import Memo
from vramwise.models.allocator import NoRoomError
from vramwise.models.autograd.size import Axes, Dim, Size, Sized
from vramwise.models.model import Model
from vramwise.training.activations.block_ends import streams_of
from vramwise.training.activations.sizes import StepShape, step_shape
from vramwise.training.exchange.offload import offloaded
from vramwise.training.exchange.units import wraps_modules
from vramwise.training.layout.parallel import ALONE, Placement
from vramwise.training.recipe.gradient_life import gradient_life
from vramwise.training.recipe.lengths import step_axes
from vramwise.training.reserved_memory.play import Player
from vramwise.training.reserved_memory.scripts import RELEASED, Line, blocks_run
from vramwise.training.reserved_memory.step_replay import STEPS, Replayed, StepReplay, Table, has_main_buffers
from vramwise.training.reserved_memory.traces import (
    FREED,
    OF_EVALUATIONS,
    OF_STEPS,
    Held,
    Part,
    Recorder,
    has_one_order,
)
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.moments import plays_evaluations
from vramwise.training.zero3 import NO_LAG, Lag


class _Recording(StepReplay):
    """A replay that allocates nothing and takes down what it would, each part when it is first asked for."""

    def __init__(
        self, model: Model, train: ResolvedTrain, batch: int, sequence: int, accumulating: bool, workspace_bytes: int,
        placement: Placement, warm_up: int,
    ) -> None:  # fmt: skip
        self.recorder = Recorder()
        super().__init__(
            model, train, batch, sequence, accumulating, workspace_bytes, None, (), placement, warm_up=warm_up,
            memory=self.recorder,
        )  # fmt: skip
        self.parts: list[Part] = []
        self.evaluation: list[Part] = []
        self.is_cut_short = False
        """Whether a part was begun and not ended (Ctrl-C): what comes next hangs on the whole of it."""

    def part(self, number: int) -> Part:
        """What comes before the steps, then each step."""
        while len(self.parts) <= number:
            self.is_cut_short = True
            if self.parts:
                self._step(is_first=len(self.parts) == 1)
            else:
                self._load()
                self.recorder.some(self.workspace)
            part = self.recorder.cut()
            self.parts.append(self.parts[-1] if self.parts and part == self.parts[-1] else part)
            self.is_cut_short = False
        return self.parts[number]

    def evaluation_parts(self) -> list[Part] | None:
        """An evaluation and the step behind it; None where they would hang on how many steps came before.

        A step that reads like the one before it leaves the same tensors in the same slots.
        """
        if self.part(STEPS + 1) is not self.part(STEPS):
            return None
        if not self.evaluation:
            self.is_cut_short = True
            self.recorder.rows = OF_EVALUATIONS
            self._evaluate()
            self.recorder.rows = OF_STEPS
            evaluated = self.recorder.cut()
            self._step(is_first=False)
            self.evaluation = [evaluated, self.recorder.cut()]
            self.is_cut_short = False
        return self.evaluation

    def _bytes(self, size: Dim) -> int:
        return Sized(size, self.axes) if isinstance(size, Size) else size

    def _sizes(self, sizes: list[Dim]) -> list[int]:
        """Places of sizes in their place: `_play` needs no more."""
        return [self.recorder.place(self._bytes(size)) for size in sizes]

    def _play(self, lines: list[Line], table: Table, sizes: list[int], given: Collection[int] = ()) -> None:
        recorder = self.recorder
        note_order, note_slot = recorder.part.orders.append, recorder.part.slots.append
        empty, leave = recorder.empty, recorder.empty.append
        for place, size in lines:
            if size == RELEASED:
                held = table[place]
                if held is not None:
                    assert held.holders > 0, "nobody lets go of a block twice"
                    held.holders -= 1
                    if not held.holders:
                        block = held.block
                        note_order(FREED)
                        note_slot(block.number)
                        leave(block)
            elif place not in given or table[place] is None:
                block = empty.pop() if empty else recorder.further_slot()
                note_order(sizes[size])
                note_slot(block.number)
                table[place] = Held(block)


_Kind = tuple[StepShape, Model, ResolvedTrain, bool, int, Placement, int, StepShape | None]
_recordings: Memo[_Kind, list[_Recording]] = Memo(8)
_OF_A_KIND = 3
"""Recordings that are kept of one kind of step: a search for the longest sequence may go to and fro between lengths at
which other blocks are nothing."""


def _recording(kind: _Kind, batch: int, sequence: int, axes: Axes, of_evaluations: Axes) -> _Recording:
    """The newest recording of such steps in which the same blocks are taken at these sizes; a new one where none is."""
    known = _recordings.get(kind, list)
    _, model, train, accumulating, workspace_bytes, placement, warm_up, evaluated = kind
    for recording in reversed(known):
        if not recording.is_cut_short:
            recording.part(1)
            if evaluated is not None:
                recording.evaluation_parts()
            if recording.recorder.holds_at(axes, of_evaluations):
                return recording
    made = _Recording(model, train, batch, sequence, accumulating, workspace_bytes, placement, warm_up)
    known[:] = [*(one for one in known if not one.is_cut_short), made][-_OF_A_KIND:]
    return made


def replay_in_order(
    model: Model, train: ResolvedTrain, batch: int, sequence: int, accumulating: bool, workspace_bytes: int,
    capacity_bytes: int | None, placement: Placement, warm_up: int = 0,
) -> Replayed:  # fmt: skip
    """The first steps as they were recorded at any size at which a model runs the same operations."""
    shape = step_shape(model, train, batch, sequence, accumulating=accumulating)
    of_evaluations = axes = step_axes(model, train, batch, sequence)
    evaluated, evaluation = None, list[Part]()
    if plays_evaluations(train, placement):
        from vramwise.training.reserved_memory.evaluation import evaluation_batch

        found = evaluation_batch(model, train, axes, batch, sequence)
        evaluated, of_evaluations = found.shape, found.axes
    kind = shape, model, train, accumulating, workspace_bytes, placement, warm_up, evaluated
    recording = _recording(kind, batch, sequence, axes, of_evaluations)
    if evaluated is not None:
        parts = recording.evaluation_parts()
        if parts is None:
            sizes = batch, sequence, accumulating, workspace_bytes, capacity_bytes
            return StepReplay(model, train, *sizes, (), placement, warm_up=warm_up).run()
        evaluation = parts
    player, wanted = Player(recording.recorder, axes, capacity_bytes, of_evaluations), 0
    try:
        player.play(recording.part(0))
        for step in range(1, STEPS + (1 if capacity_bytes is None else 2)):
            if step > STEPS and not player.was_full:
                break  # as on a card without limit
            begun = player.state() if step == STEPS else None
            player.peak_reserved = player.reserved
            player.play(recording.part(step))
            settled = begun is not None and player.was_full and player.state() == begun
            if settled and recording.part(step + 1) is recording.part(step):
                break  # another step is this one again
        for part in evaluation:
            player.play(part)
    except NoRoomError as full:
        wanted = full.wanted
    reserved = player.reserved if wanted else player.peak_reserved
    return Replayed(player.peak_allocated, reserved, wanted, player.was_full)


def is_replayed(train: ResolvedTrain, placement: Placement) -> bool:
    """Whether the replay has everything that allocates under these settings."""
    away, cut = offloaded(train), placement.cut
    if train.extra_models or not framework_of(train).replayed:
        return False
    if has_main_buffers(train):
        from vramwise.training.reserved_memory import megatron

        return megatron.is_described(train, placement)
    if gradient_life(train).released or away.activations or placement.stages > 1:
        return False
    if (cut.expert_parallel_size > 1 or cut.tensor_parallel_size > 1) and (
        placement.weight_shards == 1 or train.fsdp_version != 2
    ):  # what torch's tensor and expert parallelism go with
        return False
    if train.zero_stage:
        from vramwise.training.reserved_memory import stage_3, stages_1_2

        return stage_3.is_described(train, placement) or stages_1_2.is_described(train)
    if train.master_dtype:
        return False
    if placement.weight_shards > 1:
        if wraps_modules(train):  # blocks are what a replay gathers
            return False
        return train.fsdp in ("full-shard", "shard-grad-op")
    if train.expandable_segments or train.context_parallel_size > 1:
        return False
    moved = away.weights or away.gradients or away.optimizer
    return not moved and train.fsdp == "none" and not train.distributed_optimizer


def runs_one_by_one(shape: StepShape, model: Model, train: ResolvedTrain) -> bool:
    """Whether what a pass runs are the model's blocks, one by one, and every gradient is played as it comes.

    Where one waits for another use of its weight, and main gradients are there, it is not.
    """
    waits = has_main_buffers(train) and any(parameter.tied_to for parameter in model.all_parameters)
    return not waits and streams_of(blocks_run(model, train), len(shape.recorded.runs)) is not None


@lru_cache(maxsize=4096)
def replay(
    model: Model, train: ResolvedTrain, batch: int, sequence: int, accumulating: bool, workspace_bytes: int,
    capacity_bytes: int | None = None, lengths: tuple[int, ...] = (), placement: Placement = ALONE, lag: Lag = NO_LAG,
    warm_up: int = 0,
) -> Replayed:  # fmt: skip
    """The first steps of one rank (step_replay.py).

    `workspace_bytes`: what cuBLAS keeps for the threads of forward and backward together. `capacity_bytes`: what torch
    can reserve; where that was full, one more step is played, after which what was given back has settled. `lengths`:
    those of steps one after another, the last of them `sequence`. `lag`: of the card behind its host. `warm_up`: bytes
    of the block that was allocated before the weights (loading.py).
    """
    sizes = batch, sequence, accumulating, workspace_bytes
    if has_one_order(train) and not lengths and not has_main_buffers(train):
        return replay_in_order(model, train, *sizes, capacity_bytes, placement, warm_up)
    return StepReplay(model, train, *sizes, capacity_bytes, lengths, placement, lag, warm_up).run()
