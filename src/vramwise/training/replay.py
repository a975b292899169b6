"""A training step replayed on the allocator: what one stream has reserved after its first steps.

Every block's walk is a list of allocations and releases. A step plays them in order: forward and loss block by block,
backward from the last block to the first (a checkpointed one computes its forward again), gradients, the optimizer's
states and temporaries; `zero_grad`. The first step and a steady one are played, since states that the first one makes
take memory that activations had. Where lengths vary, a step of each length is played instead.

Not played: what gathers, buckets or moves tensors (FSDP, ZeRO, pipelines, offloading) and other streams, compiled
blocks, further models in the same process, litgpt's loop, which keeps logits over the step; `is_replayed` says for
which settings the replay stands.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache

from vramwise.models.allocator import Block, CachingAllocator, NoRoomError
from vramwise.models.autograd.size import Dim, evaluate, with_rounded_axes
from vramwise.models.autograd.tensor import ITEM_BYTES, Storage
from vramwise.models.forward_walk import walk_forward
from vramwise.models.liveness import BackwardWalk, Event, walk_backward
from vramwise.models.model import Model
from vramwise.models.step import BlockRun, runs_in
from vramwise.scenario import TrainSettings
from vramwise.training.checkpointing import cached_by_outputs, kept_storages
from vramwise.training.loss import replaces_logits
from vramwise.training.offload import offloaded
from vramwise.training.optimizers import TrainedTensor, is_paged, kept_bytes, step_transient_bytes
from vramwise.training.parallel import Placement
from vramwise.training.settings import HUGGING_FACE, autocasts, execution, releases_gradients
from vramwise.training.shared_weights import Parts, parts_of_gradients
from vramwise.training.sizes import StepShape, is_dequantized, shared_leaves, step_shape
from vramwise.training.states import quantizer, stored, trained_tensors

STEPS = 2


@dataclass(frozen=True, slots=True)
class Replayed:
    """Largest allocated bytes, and the most reserved in the last step, workspaces of the libraries included.

    Where lengths vary it is the most that any step reserved.
    `wanted`: bytes of the segment that did not fit on the card any more; 0 where everything did.
    """

    allocated: int
    reserved: int
    wanted: int = 0


def is_replayed(train: TrainSettings, placement: Placement) -> bool:
    """Whether the replay has everything that allocates under these settings."""
    alone = placement.data_parallel == placement.tensor_parallel == placement.stages == placement.expert_parallel == 1
    away = offloaded(train)
    moved = away.weights or away.gradients or away.optimizer or away.activations
    sharded = train.zero_stage or train.fsdp != "none" or train.context_parallel_size > 1 or train.master_dtype
    otherwise = train.framework in ("megatron", "litgpt") or train.compile or releases_gradients(train)
    return alone and not (moved or sharded or otherwise or train.extra_models or train.expandable_segments)


@lru_cache(maxsize=4096)
def replay(
    model: Model, train: TrainSettings, batch: int, sequence: int, accumulating: bool, workspace_bytes: int,
    capacity_bytes: int | None = None, lengths: tuple[int, ...] = (),
) -> Replayed:  # fmt: skip
    """The first steps of one GPU (see the module's docstring).

    `workspace_bytes`: what cuBLAS keeps for the threads of forward and backward together. `capacity_bytes`: what torch
    can reserve; one more step is then played, after which what is given back on the way has settled. `lengths`: those
    of steps one after another, the last of them `sequence`. Nothing is played of a pass that does not run the model's
    blocks one by one.
    """
    shape = step_shape(model, train, batch, sequence, accumulating=accumulating)
    if len(shape.recorded.runs) - len(_streams(model, train)) not in (0, 1):
        return Replayed(0, 0)
    return _Replay(model, train, batch, sequence, accumulating, workspace_bytes, capacity_bytes, lengths).run()


# -- scripts: what blocks allocate and free, without sizes ---------------------------------------------------

RELEASED = -1
Line = tuple[int, int]
"""The place of a tensor in its block's table, with the place of its size among all sizes, or `RELEASED`."""


@dataclass(slots=True)
class _Script:
    """What one block does, in order; equal blocks share it.

    `stays`: what autograd keeps from forward on; `unreleased`: what of it no operation of backward lets go; `casts`:
    16-bit weights that autocast keeps for a checkpointed block until forward is over; `cached`: what goes with the
    outputs; `arriving` and `finished`: gradients from above and of parameters, `handed`: those for the block below.
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
    arriving: dict[int, str] = field(default_factory=dict)
    handed: list[tuple[int, str]] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    wide_logits: int = RELEASED

    def place(self, what: object) -> int:
        return self.places.setdefault(what, len(self.places))


@dataclass(slots=True)
class _Writer:
    """Writes the scripts of one micro-batch; `sizes` are those of all blocks."""

    model: Model
    train: TrainSettings
    shared: frozenset[Storage]
    accumulating: bool
    sizes: dict[Dim, int] = field(default_factory=dict)
    pending: frozenset[Storage] = frozenset()

    def size(self, size: Dim) -> int:
        return self.sizes.setdefault(size, len(self.sizes))

    def lines(self, script: _Script, events: list[Event]) -> list[Line]:
        return [(script.place(what), RELEASED if size is None else self.size(size)) for what, size in events]

    def script(self, run: BlockRun, part: Parts, streams: tuple[tuple[str, ...], tuple[str, ...]]) -> _Script:
        saved = [storage for storage, _ in run.saved if storage.kind != "input"]
        ignored = frozenset(storage for storage in saved if is_dequantized(storage, self.train))
        own = [storage for storage in saved if storage not in ignored]
        kept = kept_storages(run, self.train)
        script = _Script(kept is not None, *streams)
        stays = own if kept is None else kept
        external = ignored if kept is None else ignored | frozenset(kept)
        script.incoming = [script.place(tensor.storage) for tensor in run.incoming]
        script.outgoing = [script.place(tensor.storage) for tensor in run.outgoing]
        cached = cached_by_outputs(run, self.train, self.model.config.model_type)
        script.forward = self.lines(script, walk_forward(run, kept=[*stays, *cached], external=ignored).events)
        script.cached = [script.place(storage) for storage in cached]
        script.stays = [script.place(storage) for storage in stays]
        if script.checkpointed:
            script.again = self.lines(script, walk_forward(run, kept=own, external=external, again=True).events)
            script.casts = [self.size(storage.nbytes) for storage in own if storage.kind == "weight_copy"]
        backward = walk_backward(
            run, accumulating=self.accumulating, waiting=self.shared, begun=part.begun, ending=part.ending,
            pending=self.pending, external=external, recomputed=script.checkpointed,
        )  # fmt: skip
        self.pending |= backward.waiting_views
        script.backward = self.lines(script, backward.events)
        released = {place for place, size in script.backward if size == RELEASED}
        script.unreleased = [place for place in script.stays if place not in released]
        self._connect(script, run, backward)
        return script

    def _connect(self, script: _Script, run: BlockRun, backward: BackwardWalk) -> None:
        out = {id(tensor): name for name, tensor in zip(script.outputs, run.outgoing, strict=False)}
        into = {id(tensor): name for name, tensor in zip(script.inputs, run.incoming, strict=False)}
        script.arriving = {script.place(what): out[id(t)] for t, what in backward.arriving if id(t) in out}
        script.handed = [(script.place(what), into[id(t)]) for t, what in backward.handed if id(t) in into]
        script.finished = [script.place(what) for what in backward.finished]
        if run.name == "loss" and replaces_logits(self.train, self.model):
            wide = next((node.outputs[0].storage for node in run.nodes if node.op == "_to_copy"), None)
            script.wide_logits = RELEASED if wide is None else script.place(wide)


@dataclass(frozen=True, slots=True)
class _Scripts:
    """All blocks of a micro-batch in order, and the sizes that they speak of."""

    blocks: list[_Script]
    sizes: list[Dim]


def _streams(model: Model, train: TrainSettings) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Names of what goes into and comes out of every block that a batch runs."""
    blocks = (block for block in model.blocks if runs_in(block, execution(train, model)))
    return [(tuple(block.inputs), tuple(block.outputs)) for block in blocks]


@lru_cache(maxsize=256)
def _scripts(shape: StepShape, model: Model, train: TrainSettings, accumulating: bool) -> _Scripts:
    runs = shape.recorded.runs
    streams = _streams(model, train)
    if len(runs) == len(streams) + 1:
        streams.append((("logits",), ()))
    writer = _Writer(model, train, frozenset(shared_leaves(shape.recorded)), accumulating)
    written: dict[tuple[int, Parts], _Script] = {}
    blocks: list[_Script] = []
    for run, part, names in reversed(list(zip(runs, parts_of_gradients(shape.recorded, model), streams, strict=True))):
        if (id(run), part) not in written:
            written[id(run), part] = writer.script(run, part, names)
        blocks.append(written[id(run), part])
    return _Scripts(blocks[::-1], list(writer.sizes))


# -- the steps ---------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Held:
    """An allocated block and how many refer to it."""

    block: Block
    holders: int = 1


Table = list[_Held | None]


class _Replay:
    def __init__(
        self, model: Model, train: TrainSettings, batch: int, sequence: int, accumulating: bool, workspace_bytes: int,
        capacity_bytes: int | None, lengths: tuple[int, ...],
    ) -> None:  # fmt: skip
        self.model, self.train, self.accumulating = model, train, accumulating
        self.batch, self.varied = batch, bool(lengths)
        self._of_length(sequence)
        self.workspace = workspace_bytes // 2
        self.shape: StepShape = step_shape(model, train, batch, sequence, accumulating=accumulating)
        self.memory = CachingAllocator(capacity_bytes)
        self.lengths = lengths or (sequence,) * (STEPS if capacity_bytes is None else STEPS + 1)
        self.gradients: list[_Held] = []

    def run(self) -> Replayed:
        memory, wanted = self.memory, 0
        try:
            self._load()
            self._some(self.workspace)
            for step, length in enumerate(self.lengths):
                if not self.varied:
                    memory.peak_reserved = memory.reserved
                self._of_length(length)
                self._step(is_first=step == 0)
        except NoRoomError as full:
            wanted = full.wanted
        return Replayed(memory.peak_allocated, memory.reserved if wanted else memory.peak_reserved, wanted)

    def _of_length(self, sequence: int) -> None:
        self.axes = with_rounded_axes(batch=self.batch, sequence=sequence)
        self.inputs_bytes = ITEM_BYTES["int64"] * self.batch * sequence

    def _step(self, *, is_first: bool) -> None:
        self._micro_batch(accumulating=False, is_first=is_first)
        if self.accumulating:
            self._micro_batch(accumulating=True)
        self._optimizer_step(is_first=is_first)

    def _drop(self, held: _Held) -> None:
        held.holders -= 1
        if held.holders == 0:
            self.memory.free(held.block)

    def _some(self, *sizes: int) -> list[_Held]:
        return [_Held(self.memory.take(size)) for size in sizes if size]

    def _play(self, lines: list[Line], table: Table, sizes: list[int], given: Collection[int] = ()) -> None:
        """`given`: places that are filled already, so that nothing is allocated for them."""
        take = self.memory.take
        for place, size in lines:
            if size == RELEASED:
                held = table[place]
                if held is not None:
                    self._drop(held)
            elif place not in given or table[place] is None:
                table[place] = _Held(take(sizes[size]))

    def _load(self) -> None:
        trained = trained_tensors(self.model, self.train)
        sizes = {tensor.name: tensor.numel * tensor.param_bytes for tensor, _ in trained}
        rule = quantizer(self.model, self.train)
        for parameter in self.model.parameters:
            if parameter.tied_to is None:
                frozen = sum(stored(parameter, parameter.numel, self.train, rule))
                self._some(sizes.get(parameter.name, frozen))
        for tensor, base in trained:
            if tensor.name != base.name:
                self._some(tensor.numel * tensor.param_bytes)

    def _micro_batch(self, *, accumulating: bool, is_first: bool = False) -> None:
        others = (int(evaluate(size, self.axes)) for size in (self.shape.pixels, self.shape.masks))
        given = self._some(self.inputs_bytes, self.inputs_bytes, *others)
        scripts = _scripts(self.shape, self.model, self.train, accumulating)
        sizes = [int(evaluate(size, self.axes)) for size in scripts.sizes]
        tables = self._forward(scripts.blocks, sizes)
        if is_first:
            self._some(self.workspace)  # backward runs on a thread of its own, with a workspace of its own
        self._backward(scripts.blocks, tables, sizes)
        for held in given:
            self._drop(held)

    def _forward(self, blocks: list[_Script], sizes: list[int]) -> list[Table]:
        streams: dict[str, _Held] = {}
        tables: list[Table] = []
        casts: list[_Held] = []
        cached: list[_Held] = []
        for script in blocks:
            table: Table = [None] * len(script.places)
            for name, place in zip(script.inputs, script.incoming, strict=False):
                table[place] = streams.get(name)
            came = [held for held in table if held is not None]
            self._forward_of(script, table, streams, sizes)
            casts += self._some(*(sizes[size] for size in script.casts))
            cached += [held for held in (table[place] for place in script.cached) if held is not None]
            left = [table[place] for place in script.outgoing]
            for held in (table[place] for place in script.stays):
                if held is not None and (held in came or held in left):
                    held.holders += 1
            for name, held in zip(script.outputs, left, strict=False):
                if held is not None:
                    self._bind(streams, name, held, is_new=held not in came)
            tables.append(table)
        for held in (*casts, *self._outputs_in_fp32(), *cached, *streams.values()):
            self._drop(held)
        return tables

    def _forward_of(self, script: _Script, table: Table, streams: dict[str, _Held], sizes: list[int]) -> None:
        """One block; fp32 logits may take the place of the others on the way."""
        begin = 0
        if script.wide_logits != RELEASED:
            begin = next(i for i, (place, _) in enumerate(script.forward) if place == script.wide_logits) + 1
            self._play(script.forward[:begin], table, sizes)
            wide = table[script.wide_logits]
            assert wide is not None
            self._bind(streams, "logits", wide, is_new=False)
        self._play(script.forward[begin:], table, sizes)

    def _bind(self, streams: dict[str, _Held], name: str, held: _Held, *, is_new: bool) -> None:
        """The variable `name` now refers to `held`, which counted that already if it is new."""
        before = streams.get(name)
        if before is held:
            return
        held.holders += not is_new
        streams[name] = held
        if before is not None:
            self._drop(before)

    def _outputs_in_fp32(self) -> list[_Held]:
        if self.train.framework not in HUGGING_FACE or not autocasts(self.train):
            return []
        return self._some(int(evaluate(self.shape.outputs_upcast, self.axes)))

    def _backward(self, blocks: list[_Script], tables: list[Table], sizes: list[int]) -> None:
        arriving: dict[str, _Held] = {}
        for script, table in zip(reversed(blocks), reversed(tables), strict=True):
            self._play(script.again, table, sizes)
            for place, name in script.arriving.items():
                table[place] = arriving.pop(name, None)
            self._play(script.backward, table, sizes, given=script.arriving)
            for place, name in script.handed:
                held = table[place]
                if held is not None:
                    held.holders += held in arriving.values()
                    arriving[name] = held
            for place in script.unreleased:
                held = table[place]
                if held is not None:
                    self._drop(held)
            self.gradients += [held for held in (table[place] for place in script.finished) if held is not None]
        for held in arriving.values():
            self._drop(held)

    def _optimizer_step(self, *, is_first: bool) -> None:
        train = self.train
        stepped: list[TrainedTensor] = [tensor for tensor, _ in trained_tensors(self.model, train)]
        if is_first:
            for tensor in stepped:
                if not is_paged(train.optimizer, tensor):
                    wide = train.framework in HUGGING_FACE
                    self._some(*kept_bytes(train.optimizer, tensor, fp32_embeddings=wide))
        if train.optimizer == "adamw" and train.optimizer_impl == "foreach":
            roots = self._some(*(tensor.numel * tensor.state_bytes for tensor in stepped))
        else:
            roots = self._some(step_transient_bytes(train.optimizer, train.optimizer_impl, stepped))
        for held in (*roots, *self.gradients):
            self._drop(held)
        self.gradients = []
