"""A replay by the order in which a step takes and frees blocks: recorded for one kind of step, played at every size."""

from __future__ import annotations

from collections.abc import Collection

from vramwise.memo import Memo
from vramwise.models.allocator import NoRoomError
from vramwise.models.autograd.size import Axes, Dim, Size
from vramwise.models.model import Model
from vramwise.training.activations.sizes import StepShape, step_shape
from vramwise.training.layout.parallel import Placement
from vramwise.training.recipe.lengths import step_axes
from vramwise.training.reserved_memory.held import Held
from vramwise.training.reserved_memory.play import Player
from vramwise.training.reserved_memory.scripts import RELEASED, Line
from vramwise.training.reserved_memory.step_replay import STEPS, Replayed, StepReplay, Table
from vramwise.training.reserved_memory.traces import FREED, Part, Recorder, Sized
from vramwise.training.resolved import ResolvedTrain


class _Recording(StepReplay):
    """A replay that allocates nothing and takes down what it would, each part when it is first asked for."""

    def __init__(
        self, model: Model, train: ResolvedTrain, batch: int, sequence: int, accumulating: bool, workspace_bytes: int,
        placement: Placement, warm_up: int,
    ) -> None:  # fmt: skip
        self.recorder = Recorder()
        sizes = batch, sequence, accumulating, workspace_bytes
        super().__init__(model, train, *sizes, None, (), placement, warm_up=warm_up, memory=self.recorder)
        self.parts: list[Part] = []
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


_Kind = tuple[StepShape, Model, ResolvedTrain, bool, int, Placement, int]
_recordings: Memo[_Kind, list[_Recording]] = Memo(8)
_OF_A_KIND = 3
"""Recordings that are kept of one kind of step: a search for the longest sequence may go to and fro between lengths at
which other blocks are nothing."""


def _recording(kind: _Kind, batch: int, sequence: int, axes: Axes) -> _Recording:
    """The newest recording of such steps in which the same blocks are taken at these sizes; a new one where none is."""
    known = _recordings.get(kind, list)
    for recording in reversed(known):
        if not recording.is_cut_short:
            recording.part(1)
            if recording.recorder.holds_at(axes):
                return recording
    _, model, train, accumulating, workspace_bytes, placement, warm_up = kind
    made = _Recording(model, train, batch, sequence, accumulating, workspace_bytes, placement, warm_up)
    known[:] = [*(one for one in known if not one.is_cut_short), made][-_OF_A_KIND:]
    return made


def replay_in_order(
    model: Model, train: ResolvedTrain, batch: int, sequence: int, accumulating: bool, workspace_bytes: int,
    capacity_bytes: int | None, placement: Placement, warm_up: int = 0,
) -> Replayed:  # fmt: skip
    """The first steps as they were recorded at any size at which a model runs the same operations."""
    shape = step_shape(model, train, batch, sequence, accumulating=accumulating)
    axes = step_axes(model, train, batch, sequence)
    kind = shape, model, train, accumulating, workspace_bytes, placement, warm_up
    recording = _recording(kind, batch, sequence, axes)
    player, wanted = Player(recording.recorder, axes, capacity_bytes), 0
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
    except NoRoomError as full:
        wanted = full.wanted
    reserved = player.reserved if wanted else player.peak_reserved
    return Replayed(player.peak_allocated, reserved, wanted, player.was_full)
