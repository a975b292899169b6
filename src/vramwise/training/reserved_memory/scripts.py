"""What the blocks of a micro-batch allocate and free, in order and without sizes: scripts that a replay plays."""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Storage
from vramwise.models.blocks import Block
from vramwise.models.forward_walk import walk_forward
from vramwise.models.liveness import BackwardWalk, Event, walk_backward
from vramwise.models.model import Model
from vramwise.models.step import BlockRun, runs_in
from vramwise.records import record
from vramwise.training.activations.block_ends import (
    Parts,
    Streams,
    cached_casts,
    given_up,
    named_by_frames,
    parts_of_gradients,
    streams_of,
)
from vramwise.training.activations.checkpointing import cached_by_outputs, graphs_left, kept_storages
from vramwise.training.activations.loss import replacing_logits
from vramwise.training.activations.sizes import StepShape, is_dequantized, shared_leaves
from vramwise.training.recipe.gradient_life import adds_into_main_gradients
from vramwise.training.recipe.settings import execution
from vramwise.training.resolved import ResolvedTrain

RELEASED = -1
Line = tuple[int, int]
"""The place of a tensor in its block's table, with the place of its size among all sizes, or `RELEASED`."""


@record(frozen=False)
class Script:
    """What one block does, in order; equal blocks share it.

    `again`: of a checkpointed block, backward until it asks for the first saved tensor and the second forward pass;
    `stays`: what autograd keeps from forward on; `unreleased`: what of it no operation of backward lets go; `casts`:
    16-bit weights that autocast keeps for a checkpointed block until forward is over; `cached`: what goes with the
    outputs; `returned`: what frames name until forward returns; `given_up`: names that this block is the last to have;
    `arriving` and `finished`: gradients from above and of parameters, `handed`: those for the block below; `parts`:
    sums of shared weights' gradients that are not among those; `added`: weights of which such a sum is whole, and goes;
    `left`: what its modules keep until they run again.
    """

    checkpointed: bool
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    places: dict[object, int] = field(default_factory=dict)
    forward: list[Line] = field(default_factory=list)
    again: list[Line] = field(default_factory=list)
    backward: list[Line] = field(default_factory=list)
    incoming: list[int] = field(default_factory=list)
    outgoing: list[int] = field(default_factory=list)
    stays: list[int] = field(default_factory=list)
    unreleased: list[int] = field(default_factory=list)
    casts: list[int] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)
    given_up: tuple[str, ...] = ()
    arriving: dict[int, tuple[str, ...]] = field(default_factory=dict)
    handed: list[tuple[int, str]] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    parts: list[tuple[Storage, int]] = field(default_factory=list)
    added: list[Storage] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    wide_logits: int = RELEASED

    def place(self, what: object) -> int:
        return self.places.setdefault(what, len(self.places))


@record(frozen=False)
class Writer:
    """Writes the scripts of one micro-batch; `sizes` are those of all blocks."""

    model: Model
    train: ResolvedTrain
    shared: frozenset[Storage]
    accumulating: bool
    sizes: dict[Dim, int] = field(default_factory=dict)
    pending: frozenset[Storage] = frozenset()

    def size(self, size: Dim) -> int:
        return self.sizes.setdefault(size, len(self.sizes))

    def lines(self, script: Script, events: list[Event]) -> list[Line]:
        return [(script.place(what), RELEASED if size is None else self.size(size)) for what, size in events]

    def begun(self, run: BlockRun, streams: Streams, last: frozenset[Storage], *, checkpointed: bool) -> Script:
        """A block's script with the places of its streams, of what frames name and of wide logits, and nothing done."""
        script = Script(checkpointed, *streams)
        script.incoming = [script.place(tensor.storage) for tensor in run.incoming]
        script.outgoing = [script.place(tensor.storage) for tensor in run.outgoing]
        script.returned = [script.place(storage) for storage in named_by_frames(run)]
        names = zip(script.inputs, run.incoming, strict=False)
        script.given_up = tuple(name for name, tensor in names if tensor.storage in last)
        if run.name == "loss" and run.incoming:
            wide = replacing_logits(run, self.train, self.model)
            script.wide_logits = RELEASED if wide is None else script.place(wide)
        return script

    def script(self, run: BlockRun, part: Parts, streams: Streams, last: frozenset[Storage]) -> Script:
        saved = [storage for storage, _ in run.saved if storage.kind not in ("input", "registered")]
        dequantized = frozenset(storage for storage in saved if is_dequantized(storage, run, self.train))
        own = [storage for storage in saved if storage not in dequantized]
        ignored = dequantized | of_the_batch(run)
        kept = kept_storages(run, self.train)
        script = self.begun(run, streams, last, checkpointed=kept is not None)
        stays = own if kept is None else kept
        external = ignored if kept is None else ignored | frozenset(kept)
        cached = cached_by_outputs(run, self.train, self.model)
        passing = (storage for storage in cached_casts(run, own) if storage not in external)
        casts = [*passing] if script.checkpointed else []
        returned = [*named_by_frames(run), *casts]
        walk = walk_forward(run, kept=[*stays, *cached], external=ignored, given_up=last, returned=returned)
        script.forward = self.lines(script, walk.events)
        script.cached = [script.place(storage) for storage in cached]
        script.stays = [script.place(storage) for storage in stays]
        script.casts = [script.place(storage) for storage in casts]
        left = graphs_left(run, self.train) & frozenset([*own, *stays])
        script.left = [script.place(storage) for storage in left]
        backward = walk_backward(
            run, accumulating=self.accumulating, waiting=self.shared, begun=part.begun, ending=part.ending,
            pending=self.pending, external=external, recomputed=script.checkpointed,
            fused=run.layer is not None and adds_into_main_gradients(self.train), left=left,
        )  # fmt: skip
        self.pending = frozenset(backward.waiting_views)
        events = backward.events
        if script.checkpointed:
            again = walk_forward(run, kept=own, external=external, again=True).events
            script.again = self.lines(script, events[: backward.before_first_use] + again)
            events = events[backward.before_first_use :]
        script.backward = self.lines(script, events)
        self._connect(script, run, backward)
        gone = {place for place, size in script.backward if size == RELEASED} | set(script.finished)
        gone |= {place for _, place in script.parts}
        script.unreleased = [place for place in script.stays if place not in gone]
        return script

    def _connect(self, script: Script, run: BlockRun, backward: BackwardWalk) -> None:
        out: dict[int, tuple[str, ...]] = {}
        for name, tensor in zip(script.outputs, run.outgoing, strict=False):
            out[id(tensor)] = (*out.get(id(tensor), ()), name)
        into = {id(tensor): name for name, tensor in zip(script.inputs, run.incoming, strict=False)}
        script.arriving = {script.place(what): out[id(t)] for t, what in backward.arriving if id(t) in out}
        script.handed = [(script.place(what), into[id(t)]) for t, what in backward.handed if id(t) in into]
        script.finished = [script.place(what) for what in backward.finished]
        script.parts = [(storage, script.place(what)) for storage, what in backward.parts]
        script.added = backward.added


def of_the_batch(run: BlockRun) -> frozenset[Storage]:
    """What came with the batch and goes with it, whoever reads or keeps it."""
    tensors = (tensor for node in run.nodes for tensor in (*node.inputs, *node.outputs))
    return frozenset(tensor.storage for tensor in tensors if tensor.storage.kind == "input")


@record
class Scripts:
    """All blocks of a micro-batch in order, and the sizes that they speak of."""

    blocks: list[Script]
    sizes: list[Dim]


def blocks_run(model: Model, train: ResolvedTrain) -> list[Block]:
    """The blocks that a batch runs."""
    compute = execution(train, model)
    return [block for block in model.blocks if runs_in(block, compute)]


@lru_cache(maxsize=256)
def scripts_of(shape: StepShape, model: Model, train: ResolvedTrain, accumulating: bool) -> Scripts:
    runs = shape.recorded.runs
    streams = streams_of(blocks_run(model, train), len(runs))
    assert streams is not None
    writer = Writer(model, train, frozenset(shared_leaves(shape.recorded)), accumulating)
    written: dict[tuple[int, Parts], Script] = {}
    blocks: list[Script] = []
    each = zip(runs, parts_of_gradients(shape.recorded, model), streams, given_up(runs, streams), strict=True)
    for run, part, names, last in reversed(list(each)):
        if (id(run), part) not in written:
            written[id(run), part] = writer.script(run, part, names, last)
        blocks.append(written[id(run), part])
    return Scripts(blocks[::-1], list(writer.sizes))
