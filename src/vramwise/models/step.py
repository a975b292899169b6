"""One forward pass of a described model on a tape, layer by layer, and what it leaves for backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache, partial
from itertools import islice
from typing import NamedTuple

from vramwise.models.autograd.size import Dim, axis, total
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Node, Storage, Tensor
from vramwise.models.blocks import Block, Modality
from vramwise.models.execution import Execution, loss_of
from vramwise.models.lowering import Lowering
from vramwise.models.model import Model
from vramwise.models.operations.losses import LOSSES
from vramwise.records import record, replace


class MovedByNode(NamedTuple):
    """Tensors that one node writes and reads: the places of their size and of their storage's among the block's."""

    writes: bool
    """A view writes nothing."""
    tensors: tuple[tuple[int, int], ...]


class Moved(NamedTuple):
    """The different sizes in bytes of a block's tensors and storages, and what each node moves of them."""

    sizes: tuple[Dim, ...]
    nodes: tuple[MovedByNode, ...]


@record(slots=False)
class BlockRun:
    """What one block recorded: its nodes and the storages that it was the first to save.

    `weights`: storages of its parameters and their adapters, each with the parameter's place among the block's.
    `is_recomputed`: whether checkpointing that chooses layers by number takes this one. `is_behind_layers`: no layer
    comes after it, as one comes after the encoder's last norm and what widens or narrows an embedding. `for_cache`:
    keys and values that a cache keeps where a pass has one. `named_by_modules`: what a module of it names, undetached,
    until it runs again.
    """

    name: str
    layer: int | None
    nodes: tuple[Node, ...]
    saved: tuple[tuple[Storage, str], ...]
    incoming: tuple[Tensor, ...] = ()
    outgoing: tuple[Tensor, ...] = ()
    modality: Modality = "text"
    tower_layer: bool = False
    weights: tuple[tuple[Storage, int], ...] = ()
    is_recomputed: bool | None = None
    is_behind_layers: bool = False
    for_cache: tuple[Storage, ...] = ()
    named_by_modules: tuple[Tensor, ...] = ()

    @cached_property
    def saved_bytes(self) -> Dim:
        """Bytes of the storages that this block is the first to save; what one before it saved is that one's."""
        return total(storage.nbytes for storage, _ in self.saved)

    @cached_property
    def flops(self) -> Dim:
        """Floating-point operations of the forward pass: 2 · m · k · n of each product, attention's among them.

        Convolutions count too; what works value by value does not.
        """
        return total(node.flops for node in self.nodes)

    @cached_property
    def backward_flops(self) -> Dim:
        """The same of the backward pass: a product for each operand that needs a gradient."""
        return total(node.backward_flops for node in self.nodes)

    @cached_property
    def moved(self) -> Moved:
        """What each of its nodes writes and reads."""
        places: dict[Dim, int] = {}

        def of(tensor: Tensor) -> tuple[int, int]:
            sizes = tensor.nbytes, tensor.storage.nbytes
            return places.setdefault(sizes[0], len(places)), places.setdefault(sizes[1], len(places))

        nodes = []
        for node in self.nodes:
            read_from = {tensor.storage for tensor in node.inputs}
            made = [of(tensor) for tensor in node.outputs if tensor.storage not in read_from]
            nodes.append(MovedByNode(bool(made), (*made, *map(of, node.inputs))))
        return Moved(tuple(places), tuple(nodes))


@record(slots=False)
class Repeat:
    """A layer that was not recorded again: what it has in the place of the recorded one's storages.

    `incoming`: those of the streams that it reads. `renewed`: of what it hands on, and of autocast's copies of weights.
    """

    incoming: Mapping[Storage, Storage]
    renewed: tuple[tuple[Storage, Storage], ...]


@record(slots=False)
class Forward:
    """A recorded forward pass; `runs` has one entry a block, and equal layers share one object.

    `repeats`: for each block, None where it was recorded itself.
    """

    runs: tuple[BlockRun, ...]
    repeats: tuple[Repeat | None, ...] = ()

    def repeat_at(self, place: int) -> Repeat | None:
        """How the block at a place repeats one that was recorded; None where it does not or where it is not known."""
        return self.repeats[place] if place < len(self.repeats) else None

    @cached_property
    def saved_bytes(self) -> Dim:
        """Bytes of every storage that autograd keeps, parameters excluded."""
        return total(run.saved_bytes for run in self.runs)

    @cached_property
    def flops(self) -> Dim:
        """Floating-point operations of one forward pass (2 for each multiply-add), as torch's flop counter counts.

        Counted: matrix products, attention without a discount for causality, convolutions. Not counted: pointwise
        operations, norms, softmax, embedding look-ups.
        """
        return total(run.flops for run in self.runs)

    @cached_property
    def backward_flops(self) -> Dim:
        """Floating-point operations of one backward pass; frozen weights need no product of their own."""
        return total(run.backward_flops for run in self.runs)


@record
class Structure:
    """What of the sizes changes the list of operations.

    Sizes of one, windows and chunks that the sequence outgrows, chunks that it fills without a rest or leaves one token
    behind, whether the encoder has a length of its own, and, where attention is handed a mask of floats, which axes are
    whole eights, because a kernel takes a mask of such rows as it is.
    """

    one_batch: bool
    one_token: bool
    windows_reached: frozenset[int]
    rows_of_eight: frozenset[str] = frozenset()
    chunks_filled: frozenset[int] = frozenset()
    own_source: bool = False
    one_source: bool = False
    one_behind_chunks: frozenset[int] = frozenset()


def structure_of(
    model: Model, batch: int, sequence: int, source: int | None = None, *, masked: bool = False
) -> Structure:  # fmt: skip
    """The structure that a batch, a sequence length and an encoder's length fall into; `masked`: batches with masks."""
    if model.head != "seq2seq-lm":
        source = None
    # Of two stacks it is the encoder that works in chunks.
    chunked = sequence if source is None else source
    windows = {window for window in model.windows if sequence >= window}
    windows |= {chunk for chunk in model.chunk_sizes if chunked > chunk}
    lengths = {"sequence": sequence, "source": source} if model.has_float_mask or masked or windows else {}
    eights = frozenset(name for name, length in lengths.items() if length and length % 8 == 0)
    filled = frozenset(chunk for chunk in model.chunk_sizes if chunked % chunk == 0)
    one_left = frozenset(chunk for chunk in model.chunk_sizes if chunked % chunk == 1)
    return Structure(
        batch == 1, sequence == 1, frozenset(windows), eights, filled, source is not None, source == 1, one_left
    )  # fmt: skip


def record_forward(
    model: Model, execution: Execution, *, batch: int, sequence: int, source: int | None = None
) -> Forward:  # fmt: skip
    """The forward pass and loss of `model` on a batch of text, as symbolic operations.

    `sequence` is the decoder's length where a model has an encoder too, whose length `source` is then an axis of
    that name; without it both are `sequence`. Cached: sizes enter only when evaluated.
    """
    structure = structure_of(model, batch, sequence, source, masked=execution.hands_out_masks)
    return _recorded(model, execution, structure)


@lru_cache(maxsize=256)
def _recorded(model: Model, execution: Execution, structure: Structure) -> Forward:
    tape = Tape(device=execution.device, autocast=execution.autocast)
    tape.rows_of_eight = structure.rows_of_eight
    batch: Dim = 1 if structure.one_batch else axis("batch")
    sequence: Dim = 1 if structure.one_token else axis("sequence")
    source: Dim | None = (1 if structure.one_source else axis("source")) if structure.own_source else None
    lowered = Lowering(tape, execution, batch, sequence, structure.windows_reached, source)
    lowered.chunks_filled, lowered.one_behind_chunks = structure.chunks_filled, structure.one_behind_chunks
    runs: list[BlockRun] = []
    repeats: list[Repeat | None] = []
    seen: dict[tuple[object, ...], _Known] = {}
    for block in model.blocks:
        if not runs_in(block, execution):
            continue
        is_layer = block.layer is not None or block.tower_layer
        key = _state(block, lowered) if is_layer else None
        repeat = None
        if key is not None and key in seen:
            run = seen[key].run
            repeat = seen[key].repeated_by(block, lowered)
        else:
            incoming = tuple(lowered.streams[name] for name in block.inputs)
            run = _run(block.name, block.layer, tape, partial(lowered.run, block))
            outgoing = tuple(lowered.streams[name] for name in block.outputs)
            run = replace(run, modality=block.modality, tower_layer=block.tower_layer)
            run = replace(run, incoming=incoming, outgoing=outgoing, weights=lowered.weights_of(block))
            if key is not None:
                # What the block itself saved of its outputs: a later block of another kind may save them too.
                handed_on = ((name, lowered.streams[name]) for name in block.outputs)
                kept = {name: (tensor, tape.saved.get(tensor.storage)) for name, tensor in handed_on}
                # And of its inputs, which a later block may read besides.
                first = dict(run.saved)
                taken = {name: first[x.storage] for name, x in zip(block.inputs, incoming, strict=True)
                         if x.storage in first}  # fmt: skip
                seen[key] = _Known(run, kept, taken, block)
        runs.append(run)
        repeats.append(repeat)
    if (name := model.loss or model.head) != "none":
        logits, loss = lowered.streams["logits"], loss_of(execution.kernels) or LOSSES[name]
        runs.append(replace(_run("loss", None, tape, partial(loss, lowered, logits)), incoming=(logits,)))
    behind = max((i for i, run in enumerate(runs) if run.layer is not None), default=-1) + 1
    runs[behind:] = [replace(run, is_behind_layers=True) for run in runs[behind:]]
    return Forward(tuple(runs), tuple(repeats))


@record
class _Known:
    """A recorded layer: what it hands on and saves of that, and the roles in which it is first to save its inputs."""

    run: BlockRun
    outputs: dict[str, tuple[Tensor, str | None]]
    taken: dict[str, str]
    block: Block

    def repeated_by(self, block: Block, lowered: Lowering) -> Repeat:
        """The same layer at another place: streams of its own behind it, casts of its own weights."""
        tape, streams = lowered.tape, lowered.streams
        read = {x.storage: streams[name].storage for name, x in zip(block.inputs, self.run.incoming, strict=True)}
        for name, first_role in self.taken.items():
            tape.saved.setdefault(streams[name].storage, first_role)
        renewed: list[tuple[Storage, Storage]] = []
        for parameter, other in zip(block.parameters, self.block.parameters, strict=True):
            # So that a later layer with the same ones is known to share them, and their casts.
            renewed += tape.share_cast(lowered.parameter(other), lowered.parameter(parameter))
        for name, (tensor, role) in self.outputs.items():
            streams[name] = _renewed(tensor, role, tape)
            renewed.append((tensor.storage, streams[name].storage))
        return Repeat(read, tuple(renewed))


def runs_in(block: Block, execution: Execution) -> bool:
    """Whether a batch runs a block: blocks of images only where it holds some."""
    if block.modality == "text":
        return True
    images = execution.images
    return block.modality == "image" and images is not None and (not block.tiled or images.last_grid is not None)


def _run(name: str, layer: int | None, tape: Tape, action: Callable[[], object]) -> BlockRun:
    first_node, first_saved, first_kept = len(tape.nodes), len(tape.saved), len(tape.for_cache)
    first_named = len(tape.named_by_modules)
    action()
    saved = tuple(islice(tape.saved.items(), first_saved, None))
    return BlockRun(
        name, layer, tuple(tape.nodes[first_node:]), saved, for_cache=tuple(tape.for_cache[first_kept:]),
        named_by_modules=tuple(tape.named_by_modules[first_named:]),
    )  # fmt: skip


def _state(block: Block, lowered: Lowering) -> tuple[object, ...]:
    """Blocks with equal states record equal operations: same ops, trainability, adapters, same incoming tensors."""
    incoming = []
    for name in block.inputs:
        x = lowered.streams[name]
        incoming.append((x.shape, x.strides, x.dtype, x.requires_grad, x.storage in lowered.tape.saved))
    lora = lowered.execution.lora
    trains = tuple(lowered.execution.trains(p.name) for p in block.parameters)
    trains += tuple(lora.wraps(p) for p in block.parameters) if lora is not None else ()
    names = tuple(p.tied_to or p.name for p in block.parameters)
    met = tuple(name in lowered.parameters and lowered.tape.keeps_cast(lowered.parameters[name]) for name in names)
    met += tuple(name in lowered.parameters for name in names)
    shared = tuple(table.storage in lowered.tape.saved for tables in lowered.tables.values() for table in tables)
    return (block.signature, tuple(incoming), trains, met, shared)


def _renewed(x: Tensor, role: str | None, tape: Tape) -> Tensor:
    """The output of a layer that was not recorded again: the same tensor on a storage of its own.

    `role` is that in which the layer saved it, if it did.
    """
    storage = Storage(x.storage.nbytes, x.storage.kind, x.storage.op, x.storage.module)
    if role is not None:
        tape.saved[storage] = role
    return replace(x, storage=storage)
