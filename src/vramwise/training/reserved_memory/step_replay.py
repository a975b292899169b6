"""A training step replayed on the allocator: what its streams have reserved after the first steps.

Every block's walk is a list of allocations and releases (scripts.py). A step plays them in order: forward, loss, block
by block; backward from the last block to the first (a checkpointed one computes its forward again), gradients, the
optimizer's states and temporaries; `zero_grad`. What shards tensors gathers and reduces them around the blocks
(gathers.py). The first step and a steady one are played, since states that the first one makes take memory that
activations had. Where lengths vary, a step of each length is played instead.

Under tensor and expert parallelism the walks are those of one rank, with the tokens that all-to-alls bring. What
all-gathers and reduce-scatters along the sequence make for the length of one product is not among them: a hidden state
of all tokens, of which layers have dozens.

Logits that a loop's variable names stay until the next ones are there, or the function of a step returns.

Not played: pipelines, offloaded activations, further models in the same process, litgpt's loop, whose graph
may keep the inputs of 4-bit products; `replay.is_replayed` says for which settings a replay stands.
"""

from __future__ import annotations

from collections.abc import Collection

from vramwise.frameworks import framework_of
from vramwise.models.allocator import NoRoomError
from vramwise.models.autograd.size import Dim, axis, evaluate
from vramwise.models.autograd.tensor import ITEM_BYTES, Storage
from vramwise.models.model import Model
from vramwise.optimizers import TrainedTensor, is_paged, kept_bytes, step_transient_bytes
from vramwise.records import record
from vramwise.training.activations.checkpointing import names_caches
from vramwise.training.activations.loss import makes_logits
from vramwise.training.activations.sizes import StepShape, step_shape
from vramwise.training.exchange.offload import offloaded
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.trained import trained_tensors
from vramwise.training.recipe.gradient_life import gradient_life
from vramwise.training.recipe.lengths import step_axes
from vramwise.training.recipe.settings import (
    autocasts,
    frozen_units_keep_inputs,
    keeps_outputs,
    loss_in_forward,
)
from vramwise.training.reserved_memory.loading import load
from vramwise.training.reserved_memory.scripts import RELEASED, Line, Script, scripts_of
from vramwise.training.reserved_memory.traces import Alone, Held, Memory
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.moments import plays_evaluations
from vramwise.training.zero3 import NO_LAG, Lag

STEPS = 2


@record
class Replayed:
    """Largest allocated bytes, and the most reserved in the last step, workspaces of the libraries included.

    Where lengths vary it is the most that any step reserved.
    `wanted`: bytes of the segment that did not fit on the card any more; 0 where everything did. `was_full`: whether
    one did not fit at first; where none did, the step is that on a card without limit.
    """

    allocated: int
    reserved: int
    wanted: int = 0
    was_full: bool = False


Table = list[Held | None]


def has_main_buffers(train: ResolvedTrain) -> bool:
    """Whether gradients live in buffers that Megatron makes before the first step."""
    return framework_of(train).gradients.main_buffer


def _around(memory: Memory, model: Model, train: ResolvedTrain, placement: Placement, lag: Lag) -> Alone:
    if has_main_buffers(train):
        from vramwise.training.reserved_memory.megatron import MainBuffers

        return MainBuffers(memory, model, train, placement)
    if not train.zero_stage:
        if placement.weight_shards == placement.data_parallel == 1:
            return Alone(memory)
        from vramwise.training.reserved_memory.gathers import around_blocks

        return around_blocks(memory, model, train, placement)
    if train.zero_stage < 3:
        from vramwise.training.reserved_memory.stages_1_2 import Stages1And2

        return Stages1And2(memory, model, train, placement)
    from vramwise.training.reserved_memory.stage_3 import Stage3

    return Stage3(memory, model, train, placement, lag)


class StepReplay:
    """A rank's first steps, block by block; `memory`: what allocates, a model of the caching allocator unless given."""

    def __init__(
        self, model: Model, train: ResolvedTrain, batch: int, sequence: int, accumulating: bool, workspace_bytes: int,
        capacity_bytes: int | None, lengths: tuple[int, ...], placement: Placement, lag: Lag = NO_LAG,
        warm_up: int = 0, memory: Memory | None = None,
    ) -> None:  # fmt: skip
        self.placement, self.warm_up = placement, warm_up
        self.model, self.train = model, train
        self.batch, self.varied = batch, bool(lengths)
        self._of_length(sequence)
        self.workspace = workspace_bytes // 2
        self.shape: StepShape = step_shape(model, train, batch, sequence, accumulating=accumulating)
        self.memory = memory = memory or Memory(capacity_bytes, expandable=train.expandable_segments)
        self.lengths = lengths or (sequence,) * (STEPS if capacity_bytes is None else STEPS + 1)
        self.around = _around(memory, model, train, placement, lag)
        self.named: list[Held] = []  # by the loop's variable: the outputs of the pass before
        self.names_caches = names_caches(model, train)
        self.left: dict[int, list[Held]] = {}  # by a block's modules: what they made in the pass before
        self.hooks_keep_inputs = frozen_units_keep_inputs(train)

    def run(self) -> Replayed:
        memory, wanted = self.memory, 0
        try:
            self._load()
            self.memory.some(self.workspace)
            for step, length in enumerate(self.lengths):
                if step >= STEPS and not (self.varied or memory.was_full):
                    break  # as on a card without limit
                if not self.varied:
                    memory.peak_reserved = memory.reserved
                self._of_length(length)
                self._step(is_first=step == 0)
            if plays_evaluations(self.train, self.placement):
                self._evaluate()
                self._step(is_first=False)
        except NoRoomError as full:
            wanted = full.wanted
        reserved = memory.reserved if wanted else memory.peak_reserved
        return Replayed(memory.peak_allocated, reserved, wanted, memory.was_full)

    def _of_length(self, sequence: int) -> None:
        self.sequence, self.axes = sequence, step_axes(self.model, self.train, self.batch, sequence)

    def _bytes_of_batch(self) -> tuple[int, ...]:
        read = "source" if "source" in self.axes else "sequence"
        return tuple(self._bytes(ITEM_BYTES["int64"] * axis("batch") * axis(name)) for name in (read, "sequence"))

    def _bytes(self, size: Dim) -> int:
        return int(evaluate(size, self.axes))

    def _sizes(self, sizes: list[Dim]) -> list[int]:
        return [self._bytes(size) for size in sizes]

    def _step(self, *, is_first: bool) -> None:
        accumulates = self.train.gradient_accumulation_steps > 1
        self.around.reduces = not (accumulates and gradient_life(self.train).deferred)
        stayed = self.around.adds_from_start or not (is_first or self.train.set_to_none)
        given = self._micro_batch(accumulating=stayed, is_first=is_first)
        self.around.reduces = True
        if accumulates:
            self.memory.drop_all(given)
            given = self._micro_batch(accumulating=True)
        self._optimizer_step(is_first=is_first)
        self.memory.drop_all(given)
        if self.train.step_function:
            self._name([])

    def _play(self, lines: list[Line], table: Table, sizes: list[int], given: Collection[int] = ()) -> None:
        """`given`: places that are filled already, so that nothing is allocated for them."""
        take, drop = self.memory.take, self.memory.drop
        for place, size in lines:
            if size == RELEASED:
                held = table[place]
                if held is not None:
                    drop(held)
            elif place not in given or table[place] is None:
                table[place] = Held(take(sizes[size]))

    def _load(self) -> None:
        if self.around.load():
            return
        load(self.memory, self.model, self.train, self.placement, self.warm_up)
        self.around.prepare()

    def _micro_batch(self, *, accumulating: bool, is_first: bool = False) -> list[Held]:
        """One batch; what came with it is left to a loop that names it until the next one is there."""
        brought, masks = self._bytes(self.shape.brought), self._bytes(self.shape.masks)
        given = self.memory.some(*self._bytes_of_batch(), brought)
        of_all_layers = self.memory.some(masks)
        added = accumulating and not self.around.is_sharded
        scripts = scripts_of(self.shape, self.model, self.train, added)
        sizes = self._sizes(scripts.sizes)
        tables = self._forward(scripts.blocks, sizes)
        if is_first:
            self.memory.some(self.workspace)  # backward runs on a thread of its own, with a workspace of its own
        self._backward(scripts.blocks, tables, sizes)
        self.memory.drop_all(of_all_layers)
        return given

    def _evaluate(self) -> None:
        """Batches without autograd, of other rows than a step's (evaluation.py)."""
        from vramwise.training.reserved_memory.evaluation import PASSES, evaluation_batch

        of_steps = self.axes, self.shape
        found = evaluation_batch(self.model, self.train, self.axes, self.batch, self.sequence)
        self.axes, self.shape = found.axes, found.shape
        for _ in range(PASSES):
            given = self.memory.some(*self._bytes_of_batch(), self._bytes(self.shape.brought))
            masks = self.memory.some(self._bytes(self.shape.unsaved_masks))
            self._forward(found.scripts.blocks, self._sizes(found.scripts.sizes))
            self.memory.drop_all((*masks, *given))
        self.axes, self.shape = of_steps

    def _forward(self, blocks: list[Script], sizes: list[int]) -> list[Table]:
        streams: dict[str, Held] = {}
        tables: list[Table] = []
        casts: list[Held] = []
        cached: list[Held] = []
        for index, script in enumerate(blocks):
            self.around.before_forward(index)
            self.memory.drop_all(self.left.pop(index, []))
            table: Table = [None] * len(script.places)
            for name, place in zip(script.inputs, script.incoming, strict=False):
                table[place] = streams.get(name)
            came = [held for held in table if held is not None]
            for place in script.stays:
                held = table[place]
                if held is not None:
                    held.holders += 1
            if self.shape.runs[index].name == "loss" and not loss_in_forward(self.train):
                self._name([streams["logits"]])
            self._give_up(script, streams)
            self._forward_of(script, table, streams, sizes)
            casts += self._found(table, script.casts)
            self._shared(table, [place for place in script.cached if place in script.stays])
            cached += self._found(table, script.cached)
            left = [table[place] for place in script.outgoing]
            named = [*left, *self._found(table, script.returned)]
            for held in self._found(table, script.stays):
                if held in named and held not in came:
                    held.holders += 1
            for name, held in zip(script.outputs, left, strict=False):
                if held is not None:
                    self._bind(streams, name, held, is_new=held not in came)
                    came.append(held)  # a second name of the same tensor is one holder more
            for place, held in enumerate(self._found(table, script.returned)):
                self._bind(streams, f"last hidden {place}", held, is_new=held not in came)
            tables.append(table)
            self.around.after_forward(index)
        logits = [streams.pop("logits")] if "logits" in streams else []
        self.memory.drop_all((*casts, *streams.values()))  # autocast ends and frames return before accelerate copies
        if loss_in_forward(self.train):
            self._name(logits, cached if self.names_caches else [])
        self.memory.drop_all((*self._outputs_in_fp32(), *cached, *logits))
        self.around.forward_over()
        return tables

    def _name(self, logits: list[Held], caches: Collection[Held] = ()) -> None:
        """What the loop's variable refers to from now on, if it names the outputs."""
        named = [*(logits if keeps_outputs(self.train) and makes_logits(self.train) else []), *caches]
        for held in named:
            held.holders += 1
        self.memory.drop_all(self.named)
        self.named = named

    def _give_up(self, script: Script, streams: dict[str, Held]) -> None:
        """Names that the block takes over: what they refer to goes by the block's own script, once."""
        taken: set[int] = set()
        for name in script.given_up:
            held = streams.pop(name, None)
            if held is not None and id(held) in taken:
                self.memory.drop(held)
            taken.add(id(held))

    def _found(self, table: Table, places: list[int]) -> list[Held]:
        return [held for held in (table[place] for place in places) if held is not None]

    def _forward_of(self, script: Script, table: Table, streams: dict[str, Held], sizes: list[int]) -> None:
        """One block; fp32 logits may take the place of the others on the way."""
        begin = 0
        if script.wide_logits != RELEASED:
            begin = next(i for i, (place, _) in enumerate(script.forward) if place == script.wide_logits) + 1
            self._play(script.forward[:begin], table, sizes)
            wide = table[script.wide_logits]
            assert wide is not None
            self._bind(streams, "logits", wide, is_new=False)
        self._play(script.forward[begin:], table, sizes)

    def _bind(self, streams: dict[str, Held], name: str, held: Held, *, is_new: bool) -> None:
        """The variable `name` now refers to `held`, which counted that already if it is new."""
        before = streams.get(name)
        if before is held:
            return
        held.holders += not is_new
        streams[name] = held
        if before is not None:
            self.memory.drop(before)

    def _outputs_in_fp32(self) -> list[Held]:
        if not framework_of(self.train).trainer or not autocasts(self.train):
            return []
        return self.memory.some(self._bytes(self.shape.outputs_upcast))

    def _backward(self, blocks: list[Script], tables: list[Table], sizes: list[int]) -> None:
        around, arriving, hooked = self.around, dict[str, Held](), list[Held]()
        parts: dict[Storage, Held] = {}
        for index, script, table in reversed(list(zip(range(len(blocks)), blocks, tables, strict=True))):
            for place, names in script.arriving.items():
                came = [arriving.pop(name) for name in names if name in arriving]
                table[place] = came[0] if came else None
                self.memory.drop_all(came[1:])  # added into the first
            if script.checkpointed:
                around.before_recomputing(index)
                self._play(script.again, table, sizes, given=script.arriving)
            around.before_backward(index)
            if self.hooks_keep_inputs and script.checkpointed:
                hooked += self._shared(table, script.stays)
            given = () if script.checkpointed and script.again else script.arriving
            self._play(script.backward, table, sizes, given=given)
            if self.hooks_keep_inputs and script.checkpointed:
                self._sum_apart(script, table)
                hooked += self._shared(table, [place for place, _ in script.handed])
            self._hand(script, table, arriving)
            self.left[index] = self._found(table, [place for place in script.left if place not in script.stays])
            self.left[index] += self._shared(table, [place for place in script.left if place in script.stays])
            self.memory.drop_all(self._found(table, script.unreleased))
            parts |= {storage: held for storage, place in script.parts if (held := table[place]) is not None}
            self.memory.drop_all(parts.pop(storage) for storage in script.added)
            around.after_backward(index, self._found(table, script.finished))
        self.memory.drop_all((*arriving.values(), *hooked))
        around.backward_over()

    def _hand(self, script: Script, table: Table, arriving: dict[str, Held]) -> None:
        """Gradients for the blocks below: one goes where each of its names has one already, into which it is added."""
        bound: set[int] = set()
        added: dict[int, Held] = {}
        for place, name in script.handed:
            held = table[place]
            if held is None:
                continue
            if name in arriving:
                added[id(held)] = held
            else:
                held.holders += held in arriving.values()
                arriving[name] = held
                bound.add(id(held))
        self.memory.drop_all(held for key, held in added.items() if key not in bound)

    def _sum_apart(self, script: Script, table: Table) -> None:
        """A gradient that somebody else holds is not added to in place: the sum is a tensor of its own."""
        came = [table[place] for place in script.arriving]
        for place, _ in script.handed:
            held = table[place]
            if held is not None and held in came:
                table[place] = self.memory.hold(held.block.size)
                self.memory.drop(held)

    def _shared(self, table: Table, places: list[int]) -> list[Held]:
        """What is in these places, with one holder more."""
        found = [held for held in (table[place] for place in places) if held is not None]
        for held in found:
            held.holders += 1
        return found

    def _optimizer_step(self, *, is_first: bool) -> None:
        train, placement = self.train, self.placement
        if self.around.step():
            return
        stepped: list[tuple[TrainedTensor, int]] = []
        if not offloaded(train).optimizer:
            pairs = trained_tensors(self.model, train)
            stepped = [(t, placement.stepped_numel(base, placement.local_numel(base, t.numel))) for t, base in pairs]
        if is_first:
            for tensor, numel in stepped:
                if not is_paged(train.optimizer, tensor):
                    wide = framework_of(train).trainer
                    kept = kept_bytes(train.optimizer, tensor, fp32_embeddings=wide)
                    self.memory.some(*(-(-size * numel // tensor.numel) for size in kept))
        if train.optimizer == "adamw" and train.optimizer_impl == "foreach":
            transient = self.memory.some(*(numel * tensor.state_bytes for tensor, numel in stepped))
        else:
            own, whole = sum(numel for _, numel in stepped), sum(tensor.numel for tensor, _ in stepped)
            size = step_transient_bytes(train.optimizer, train.optimizer_impl, [tensor for tensor, _ in stepped])
            transient = self.memory.some(size * own // max(1, whole))
        self.memory.drop_all(transient)
        if train.set_to_none:
            self.around.zeroed()
