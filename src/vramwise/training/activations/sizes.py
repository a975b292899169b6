"""One micro-batch in polynomials: what each block keeps, and the largest live sets of its backward pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Generic, TypeVar

from vramwise.frameworks import framework_of
from vramwise.memo import Memo
from vramwise.models.autograd.size import Axes, Dim, evaluate, one_of, probe, terms_of, total
from vramwise.models.autograd.tensor import ITEM_BYTES, Storage
from vramwise.models.forward_walk import ForwardWalk, last_uses_in, walk_forward
from vramwise.models.liveness import walk_backward
from vramwise.models.model import Model
from vramwise.models.moments import Moment, Peak, largest, undominated
from vramwise.models.step import BlockRun, Forward, Structure, runs_in, structure_of
from vramwise.records import record, replace
from vramwise.training.activations.block_ends import (
    Parts,
    begun_streams,
    cached_casts,
    given_up,
    is_head,
    leaves_of,
    named_by_frames,
    outputs_held,
    parts_of_gradients,
    returned_by,
    shared_streams,
    streams_of,
    tables,
)
from vramwise.training.activations.checkpointing import (
    ARGUMENTS,
    brought_with_batch,
    cached_by_outputs,
    graphs_left,
    kept_storages,
    masks_held,
)
from vramwise.training.activations.loss import logits_held
from vramwise.training.activations.recording import micro_batch
from vramwise.training.model_states.trained import rounded
from vramwise.training.recipe.gradient_life import adds_into_main_gradients, reentrant
from vramwise.training.recipe.lengths import lengths
from vramwise.training.recipe.settings import execution, keeps_outputs, of_operations
from vramwise.training.resolved import ResolvedTrain

Groups = tuple[tuple[Dim, int], ...]
"""Sizes with how often each occurs: the allocator rounds each one up."""
Sizes = Groups | Dim
"""Tensors one by one, or a sum that is as large as it says."""


@record
class KeptTensor:
    """One tensor that a block keeps, for explaining: who made it, who saved it."""

    module: str
    role: str
    nbytes: Dim
    count: int


Bytes = TypeVar("Bytes")
Most = TypeVar("Most")


@record(eq=False)
class Run(Generic[Bytes, Most]):
    """A block of a micro-batch: as a shape in polynomials (`RunShape`), or `at` given sizes in bytes (`RunBytes`).

    `kept`: what it keeps, for explaining; `waiting_views`: shared weights whose gradient from here is a view.
    """

    name: str
    layer: int | None
    is_head: bool
    checkpointed: bool
    kept: tuple[KeptTensor, ...]
    waiting_views: frozenset[Storage]
    activations: Bytes
    """What autograd keeps from forward to backward, but for copies of weights: of a checkpointed block its inputs."""
    handed_on: Bytes
    """Rotary tables and masks among what a checkpointed block keeps: arguments, which no offloading moves."""
    weight_casts: Bytes
    """Autocast's 16-bit copies of trained weights that are kept until backward."""
    forward_casts: Bytes
    """The same of a checkpointed block, which go when the forward pass is over."""
    casts: Bytes
    """The same of a forward pass without autograd."""
    stream: Bytes
    """The hidden states that a checkpointed block receives, and as many bytes of their gradient."""
    incoming: Bytes
    """What the block receives."""
    incoming_kept: Bytes
    """What of it autograd keeps."""
    tables: Bytes
    """What it reads and nothing on the tape made: rotary tables."""
    last_hidden: Bytes
    """What the output layer reads."""
    outputs_held: Bytes
    """What the model's outputs refer to and autograd does not."""
    returned: Bytes
    """What it returns beside the hidden states and autograd does not keep: attention weights."""
    cached: Bytes
    """Keys and values that the cache of an evaluation keeps, where it has one."""
    graph_left: Bytes
    """What of its second forward pass outlives its backward pass, because its modules name a value of it."""
    leaves: Bytes
    """What it asks the gradient of, which stays with it until backward is over."""
    weight_gradients: Bytes
    """All gradients of its parameters, in the dtype in which they leave backward."""
    forward_peak: Most
    """Moments of its forward pass."""
    unsaved_peak: Most
    """Moments of a forward pass without autograd, beside `incoming` and `casts`."""
    head_peak: Most
    """Moments of the backward pass of the output layer and the loss."""
    peak: Most
    """Moments of the backward pass of any other block, and of the forward pass that it computes again."""

    def at(self: RunShape, axes: Axes) -> RunBytes:
        """The block at these sizes: every polynomial as whole bytes, every set of moments as its largest."""
        return Run(
            self.name,
            self.layer,
            self.is_head,
            self.checkpointed,
            self.kept,
            self.waiting_views,
            activations=_sum(self.activations, axes),
            handed_on=_sum(self.handed_on, axes),
            weight_casts=_sum(self.weight_casts, axes),
            forward_casts=_sum(self.forward_casts, axes),
            casts=_sum(self.casts, axes),
            stream=_sum(self.stream, axes),
            incoming=_sum(self.incoming, axes),
            incoming_kept=_sum(self.incoming_kept, axes),
            tables=_sum(self.tables, axes),
            last_hidden=_sum(self.last_hidden, axes),
            outputs_held=_sum(self.outputs_held, axes),
            returned=_sum(self.returned, axes),
            cached=_sum(self.cached, axes),
            graph_left=_sum(self.graph_left, axes),
            leaves=_sum(self.leaves, axes),
            weight_gradients=_sum(self.weight_gradients, axes),
            forward_peak=largest(self.forward_peak, axes),
            unsaved_peak=largest(self.unsaved_peak, axes),
            head_peak=largest(self.head_peak, axes),
            peak=largest(self.peak, axes),
        )


RunShape = Run[Sizes, tuple[Moment, ...]]
RunBytes = Run[int, Peak]


@record(eq=False)
class StepShape:
    """All blocks of a micro-batch in order; equal layers share one shape.

    `logits_in_loop`: logits that the loop's variable names; `logits_beside_loss`: those of them that the loss does not
    keep itself until its backward pass.
    `forward`: what they were shaped from, None in a shape that was kept between runs; `recording` makes it again.
    """

    runs: tuple[RunShape, ...]
    logits_in_loss: Dim
    logits_in_outputs: Dim
    outputs_upcast: Dim
    masks: Dim
    unsaved_masks: Dim
    shared_streams: tuple[tuple[int, int, Dim], ...]
    brought: Dim
    logits_in_loop: Dim
    logits_beside_loss: Dim
    forward: Forward | None = field(repr=False)
    recording: tuple[Model, ResolvedTrain, int, int] = field(repr=False)

    @property
    def recorded(self) -> Forward:
        """What they were shaped from; recorded again where the shape was kept without it."""
        if self.forward is None:
            object.__setattr__(self, "forward", micro_batch(*self.recording))
        assert self.forward is not None
        return self.forward

    def at(self, axes: Axes) -> list[RunBytes]:
        """Every block at these sizes, in order; equal layers share one. Kept: a step and its terms ask alike."""
        return _sized.get((self, axes["batch"], axes["sequence"], axes.get("source", 0)), lambda: self._at(axes))

    def _at(self, axes: Axes) -> list[RunBytes]:
        sizes = {id(run): run.at(axes) for run in {id(run): run for run in self.runs}.values()}
        return [sizes[id(run)] for run in self.runs]


_sized: Memo[tuple[StepShape, int, int, int], list[RunBytes]] = Memo(16)


def _sum(sizes: Sizes, axes: Axes) -> Any:
    if not isinstance(sizes, tuple):
        return evaluate(sizes, axes)
    return sum(rounded(evaluate(size, axes)) * count for size, count in sizes)


def _groups(storages: Iterable[Storage]) -> Groups:
    """Equal sizes together; those that the allocator never rounds up are one sum."""
    counts = Counter(storage.nbytes for storage in storages)
    whole = [size for size in counts if all(rounded(value) == value for value in terms_of(size).values())]
    together = total(size * counts[size] for size in whole)
    others = tuple((size, count) for size, count in counts.items() if size not in whole)
    return ((together, 1), *others) if whole else others


def step_shape(model: Model, train: ResolvedTrain, batch: int, sequence: int, *, accumulating: bool) -> StepShape:
    """What every block of a micro-batch keeps and reaches, in bytes as polynomials of batch and lengths.

    Sizes enter only when it is evaluated (`at`): those with the same list of operations share one recording. `sequence`
    is in tokens; `accumulating`: gradients of an earlier micro-batch are there. Raises ScenarioError for a way to the
    loss that the model has not, UnsupportedModelError for operations that are not described.
    """
    train = of_operations(train)
    masked = execution(train, model).hands_out_masks
    key = (model, train, structure_of(model, batch, *lengths(model, train, sequence), masked=masked), accumulating)
    recording = model, train, one_of(batch), one_of(sequence)
    return _shapes.get(key, lambda: _shaped(recording, accumulating))


_shapes: Memo[tuple[Model, ResolvedTrain, Structure, bool], StepShape] = Memo(512)

KnownShape = tuple[tuple[ResolvedTrain, Structure, bool], StepShape]


def known_shapes(model: Model) -> list[KnownShape]:
    """The shapes of a model that were made so far, without the passes that they were shaped from."""
    return [(key[1:], replace(shape, forward=None)) for key, shape in _shapes.items() if key[0] is model]


def put_shapes(model: Model, shapes: Iterable[KnownShape]) -> None:
    """Take shapes of a model that were made before. Raises TypeError for what is none."""
    for (train, structure, accumulating), shape in shapes:
        if not isinstance(shape, StepShape) or not isinstance(train, ResolvedTrain):
            raise TypeError("not a shape of a step")
        _shapes.put((model, train, structure, accumulating), shape)


def _shaped(recording: tuple[Model, ResolvedTrain, int, int], accumulating: bool) -> StepShape:
    model, train, *_ = recording
    forward = micro_batch(*recording)
    shared = frozenset(shared_leaves(forward))
    parts = parts_of_gradients(forward, model)
    compute = execution(train, model)
    blocks = [block for block in model.blocks if runs_in(block, compute)]
    streams = shared_streams(forward, blocks, train)
    names = streams_of(blocks, len(forward.runs))
    last = given_up(forward.runs, names) if names is not None else [frozenset[Storage]()] * len(forward.runs)
    loss = next((run for run in forward.runs if run.name == "loss" and run.incoming), None)
    begun = begun_streams(forward.runs, names or ())
    shapes: dict[tuple[int, Parts, frozenset[str]], RunShape] = {}
    pending: frozenset[Storage] = frozenset()
    # Backward's order: the head's part of a tied weight comes first.
    places = range(len(forward.runs))
    for i in reversed(places):
        key = id(forward.runs[i]), parts[i], begun[i]
        if key not in shapes:
            inputs = names[i][0] if names is not None else ()
            shapes[key] = shape = _run_shape(
                forward.runs[i], train, model, accumulating, shared, parts[i], pending, streams.counted_once, last[i],
                loss, begun[i], inputs,
            )  # fmt: skip
            pending = shape.waiting_views
    runs = tuple(shapes[id(forward.runs[i]), parts[i], begun[i]] for i in places)
    masks, brought = masks_held(forward, model, train), brought_with_batch(forward)
    alive = masks_held(forward, model, train.replace(checkpointing="full", recompute=()), passing=True)
    if loss is None:
        return StepShape(runs, 0, 0, 0, masks, alive, streams.made, brought, 0, 0, forward, recording)
    logits = loss.incoming[0]
    during, after = logits_held(train, loss, model)
    named = after if keeps_outputs(train) else 0
    if any(storage is logits.storage for storage, _ in loss.saved):
        after = 0  # counted among what the loss keeps
    wide = logits.numel * ITEM_BYTES["fp32"]
    copied: Dim = wide if after != 0 and probe(after) != probe(wide) else 0
    several = streams.made
    beside = named if after != 0 else 0
    return StepShape(runs, during, after, copied, masks, alive, several, brought, named, beside, forward, recording)


def shared_leaves(forward: Forward) -> set[Storage]:
    """Trained parameters that two blocks use: their gradient waits until both parts are there."""
    users: dict[Storage, set[int]] = {}
    for run in {id(run): run for run in forward.runs}.values():
        for node in run.nodes:
            for tensor in node.inputs:
                if tensor.storage.kind == "parameter" and tensor.requires_grad:
                    users.setdefault(tensor.storage, set()).add(id(run))
    return {storage for storage, runs in users.items() if len(runs) > 1}


def _run_shape(
    run: BlockRun, train: ResolvedTrain, model: Model, accumulating: bool, shared: frozenset[Storage], part: Parts,
    pending: frozenset[Storage], counted_once: frozenset[Storage], passed: frozenset[Storage],
    loss: BlockRun | None, begun: frozenset[str], inputs: tuple[str, ...],
) -> RunShape:  # fmt: skip
    saved = [(storage, role) for storage, role in run.saved if storage.kind not in ("input", "registered")]
    ignored = frozenset(storage for storage, _ in saved if is_dequantized(storage, run, train))
    own = [storage for storage, _ in saved if storage not in ignored]
    kept = kept_storages(run, train)
    checkpointed, left = kept is not None, graphs_left(run, train)
    external = ignored | (frozenset(kept) if kept is not None else frozenset())
    walk = walk_backward(
        run, accumulating=accumulating, waiting=shared, begun=part.begun, ending=part.ending, pending=pending,
        external=external, recomputed=checkpointed,
        fused=run.layer is not None and adds_into_main_gradients(train), left=left,
        begun_streams=begun, inputs=inputs,
    )  # fmt: skip
    after_layers, named = is_head(run), named_by_frames(run)
    stays = own if kept is None else [storage for storage in kept if storage not in counted_once]
    uses = last_uses_in(run)
    recompute = _recomputed(run, walk.at_first_use, external, uses) if checkpointed else []
    casts, cached = cached_casts(run, own), cached_by_outputs(run, train, model)
    beside = [storage for storage in cached if storage not in stays]
    passing = [storage for storage in casts if storage not in external]
    return Run(
        name=run.name,
        layer=run.layer,
        is_head=after_layers,
        checkpointed=checkpointed,
        kept=_kept(run, stays),
        waiting_views=frozenset(walk.waiting_views),
        activations=_groups(storage for storage in stays if storage.kind != "weight_copy"),
        handed_on=_groups(storage for storage in kept or () if storage.op in ARGUMENTS),
        weight_casts=_groups(storage for storage in stays if storage.kind == "weight_copy"),
        forward_casts=_groups(s for s in passing if checkpointed),
        casts=_groups(casts),
        stream=_groups({tensor.storage: None for tensor in run.incoming}) if checkpointed else (),
        incoming=_groups({tensor.storage: None for tensor in run.incoming}),
        incoming_kept=_groups({t.storage: None for t in run.incoming if t.storage in stays or t.storage in named}),
        tables=_groups(dict.fromkeys(tables(run))),
        last_hidden=_groups(named),
        outputs_held=_groups(outputs_held(run, loss) if after_layers else beside),
        returned=_groups(storage for storage in returned_by(run) if storage not in stays),
        cached=_groups(dict.fromkeys(run.for_cache)),
        graph_left=_groups(left),
        leaves=_groups(() if checkpointed and reentrant(train) else leaves_of(run)),
        weight_gradients=walk.weight_gradients,
        forward_peak=undominated(
            _first_pass(run, stays if checkpointed else None, passing, cached, passed, uses).moments
        ),
        unsaved_peak=undominated(walk_forward(run, kept=(), external=frozenset(casts), last_uses=uses).moments),
        head_peak=walk.of() if after_layers else (),
        peak=() if after_layers else undominated((*walk.of(), *recompute)),
    )


def _first_pass(
    run: BlockRun, stays: list[Storage] | None, passing: list[Storage], cached: list[Storage],
    passed: frozenset[Storage], uses: Mapping[Storage, int],
) -> ForwardWalk:  # fmt: skip
    """As a training step runs it: a checkpointed block keeps what `stays`; `passing` and `cached` outlive any."""
    if stays is None:
        return walk_forward(run, given_up=passed, returned=[*named_by_frames(run), *cached], last_uses=uses)
    return walk_forward(run, kept=stays, returned=[*passing, *cached], last_uses=uses)


def _recomputed(
    run: BlockRun, gradients: Dim, external: frozenset[Storage], uses: Mapping[Storage, int]
) -> list[Moment]:
    """Moments of the second forward pass, beside the gradients that wait for it."""
    again = walk_forward(run, external=external, again=True, last_uses=uses).moments
    return [replace(moment, temporaries=moment.temporaries + gradients) for moment in again]


def is_dequantized(storage: Storage, run: BlockRun, train: ResolvedTrain) -> bool:
    """A quantized weight's 16-bit copy is not kept: backward dequantizes again (bitsandbytes MatMul4Bit).

    The output layer, whatever a model calls it, stays as it was where the framework does not quantize it
    (transformers 5.0 quantizers/base.py `get_modules_to_not_convert`): autograd keeps autocast's copy of it.
    """
    if train.quantization is None or storage.kind != "weight_copy":
        return False
    return not is_head(run) or framework_of(train).quantizing.head


def _kept(run: BlockRun, storages: Iterable[Storage]) -> tuple[KeptTensor, ...]:
    roles = dict(run.saved)
    counted: Counter[tuple[str, str, Dim]] = Counter()
    for storage in storages:
        role = roles.get(storage, f"{storage.op}.input")
        counted[storage.module, role, storage.nbytes] += 1
    return tuple(KeptTensor(module, role, size, count) for (module, role, size), count in counted.items())
