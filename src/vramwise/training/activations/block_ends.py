"""What a block reads from outside and what the model's outputs refer to.

Streams that several checkpointed layers read as they are: autograd keeps one tensor, not one for each layer.

Gemma 3n and 4 hand every layer a slice of the same embeddings and later layers the keys and values of earlier ones,
decoders read one encoder's output. A slice is a view: torch.utils.checkpoint keeps the whole storage, once.

Weights that several blocks use: tied embeddings, layers that share one set of weights.

The gradient of such a weight waits, as one sum, from the first block of backward that makes a part of it until the last
(torch 2.13, `torch/csrc/autograd/input_buffer.cpp`): it is there once, however many blocks add to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Storage
from vramwise.models.blocks import Block
from vramwise.models.model import Model
from vramwise.models.step import BlockRun, Forward
from vramwise.records import record
from vramwise.training.activations.checkpointing import ROTARY_TABLES, kept_storages
from vramwise.training.resolved import ResolvedTrain


def is_head(run: BlockRun) -> bool:
    """Whether a block comes after all layers: final norm and output layer, or the loss."""
    return run.is_behind_layers and reads_layers(run)


def reads_layers(run: BlockRun) -> bool:
    """Whether a block that is no layer takes hidden states: a head, an encoder's last norm, a wider embedding."""
    return run.layer is None and run.modality == "text" and bool(run.incoming)


def output_modules(run: BlockRun) -> frozenset[str]:
    """Modules of the output layer: those of the head that are no norm; none where no product is among them."""
    nodes = [node for node in run.nodes if "norm" not in node.module.lower() and "ln_f" not in node.module]
    has_output_layer = any(node.primitive.product is not None for node in nodes)
    return frozenset(node.module for node in nodes) if has_output_layer else frozenset()


def outputs_held(run: BlockRun, loss: BlockRun | None) -> list[Storage]:
    """What frames and the model's outputs refer to and autograd does not: the last hidden states.

    Logits are counted apart. `loss`: the block behind this one, if there is one.
    """
    saved = {storage for each in (run, loss) if each is not None for storage, _ in each.saved}
    return [storage for storage in named_by_frames(run) if storage not in saved]


def tables(run: BlockRun) -> list[Storage]:
    """What a block reads and nothing on the tape made: rotary tables."""
    made = {
        output.storage
        for node in run.nodes
        for output in node.outputs
        if all(output.storage is not tensor.storage for tensor in node.inputs)
    }
    read = (tensor.storage for node in run.nodes for tensor in node.inputs if tensor.storage.op in ROTARY_TABLES)
    return [storage for storage in read if storage not in made]


def named_by_frames(run: BlockRun) -> list[Storage]:
    """The last hidden states, which the frame that calls the output layer and the loss names until it returns."""
    if not is_head(run) or run.name == "loss":
        return []
    head = output_modules(run)
    if not head:  # the output layer is part of the loss
        return [tensor.storage for tensor in run.outgoing[:1]]
    made_before = {output.storage for node in run.nodes if node.module not in head for output in node.outputs}
    made_before |= {tensor.storage for tensor in run.incoming}
    last = [
        tensor.storage
        for node in run.nodes
        if node.module in head and node.op in ("view", "_to_copy")
        for tensor in node.inputs
        if tensor.storage in made_before
    ]
    names = (node for node in run.nodes if node.op == "locals beside the loss")
    return list(dict.fromkeys([*last[:1], *(tensor.storage for node in names for tensor in node.inputs)]))


def returned_by(run: BlockRun) -> list[Storage]:
    """What a block returns beside its streams, each once."""
    nodes = (node for node in run.nodes if node.op == "returned")
    return list(dict.fromkeys(tensor.storage for node in nodes for tensor in node.inputs))


Streams = tuple[tuple[str, ...], tuple[str, ...]]
"""Names of what goes into a block and of what comes out of it."""


def streams_of(blocks: Sequence[Block], count: int) -> list[Streams] | None:
    """Streams of each of `count` recorded blocks, a loss behind the model's among them; None where they are others."""
    if count - len(blocks) not in (0, 1):
        return None
    named = [(tuple(block.inputs), tuple(block.outputs)) for block in blocks]
    return named + [(("logits",), ())] * (count - len(blocks))


def given_up(runs: Sequence[BlockRun], streams: Sequence[Streams]) -> list[frozenset[Storage]]:
    """What each block receives as the last one that names it: the hidden states behind the layers, which a norm takes.

    Layers are called in a frame that names their input until they return; so no layer gives anything up. Nor does a
    head without a norm whose product is part of the loss: what it receives is what it hands on.
    """
    found: list[frozenset[Storage]] = []
    wanted: set[str] = set()
    for run, (inputs, outputs) in reversed(list(zip(runs, streams, strict=True))):
        names = zip(inputs, run.incoming, strict=False)
        last = {tensor.storage for name, tensor in names if name in outputs or name not in wanted}
        last -= {tensor.storage for tensor in run.outgoing} | {*named_by_frames(run)}
        found.append(frozenset(last) if reads_layers(run) and run.name != "loss" else frozenset())
        wanted = wanted - set(outputs) | set(inputs)
    return found[::-1]


def begun_streams(runs: Sequence[BlockRun], streams: Sequence[Streams]) -> list[frozenset[str]]:
    """Of what each block reads the streams that a block above it reads too: their gradient has a part from there.

    It waits, as one sum, until the block that made the stream (torch 2.13, `torch/csrc/autograd/input_buffer.cpp`).
    """
    found: list[frozenset[str]] = []
    begun: set[str] = set()
    for run, (inputs, outputs) in reversed(list(zip(runs, streams, strict=False))):
        received = {id(tensor) for tensor in run.incoming}
        begun -= {name for name, tensor in zip(outputs, run.outgoing, strict=False) if id(tensor) not in received}
        found.append(frozenset(begun & {*inputs}))
        begun |= {name for name, tensor in zip(inputs, run.incoming, strict=False) if tensor.requires_grad}
    return found[::-1] or [frozenset()] * len(runs)


@record
class SharedStreams:
    """Streams that stand once however many layers keep them, and what recordings therefore do not count themselves.

    `made`: the place of the block that makes one, -1 for what no block does, that of the last block whose backward
    pass finds it, and its bytes.
    """

    made: tuple[tuple[int, int, Dim], ...] = ()
    counted_once: frozenset[Storage] = frozenset()


def shared_streams(forward: Forward, blocks: Sequence[Block], train: ResolvedTrain) -> SharedStreams:
    """What two and more of the checkpointed `blocks`, each recorded in `forward.runs`, take in unchanged."""
    if train.checkpointing == "none" or not 0 <= len(forward.runs) - len(blocks) <= 1:
        return SharedStreams()
    checkpointed = {id(run): kept_storages(run, train) is not None for run in forward.runs}
    maker: dict[str, int] = {}
    readers: dict[tuple[str, int], list[Storage]] = {}
    for place, (run, block) in enumerate(zip(forward.runs, blocks, strict=False)):
        if checkpointed[id(run)]:
            for name, tensor in zip(block.inputs, run.incoming, strict=False):
                readers.setdefault((name, maker.get(name, -1)), []).append(tensor.storage)
        maker.update(dict.fromkeys(block.outputs, place))
    several = {made: storages for made, storages in readers.items() if len(storages) > 1}
    alone = {storages[0] for storages in readers.values() if len(storages) == 1}
    elsewhere = {storage for run in forward.runs if not checkpointed[id(run)] for storage, _ in run.saved}
    once = {storage for storages in several.values() for storage in storages} - alone
    held = {storages[0]: place for (_, place), storages in several.items() if storages[0] in once - elsewhere}
    made = tuple(
        (place, place + (place < 0 or storage not in leaves_of(forward.runs[place])), storage.nbytes)
        for storage, place in held.items()
    )
    once |= {
        storage for run in forward.runs if checkpointed[id(run)] for storage in _kept_before(run, forward, elsewhere)
    }
    return SharedStreams(made, frozenset(once))


def leaves_of(run: BlockRun) -> list[Storage]:
    """What a block made and then asked for the gradient of.

    The node that adds it up refers to both, and goes with the graph: they are there until all of backward is over
    (torch 2.13 csrc/autograd/functions/accumulate_grad.h).
    """
    return [saved for node in run.nodes if node.op == "requires_grad_" for saved, _ in node.saved]


def _kept_before(run: BlockRun, forward: Forward, elsewhere: set[Storage]) -> set[Storage]:
    """What a layer reads that a block below it keeps already, such as embedded tokens that want a gradient.

    Only where the record is that of one layer: equal ones read other tensors.
    """
    if sum(other is run for other in forward.runs) > 1:
        return set()
    return {tensor.storage for tensor in run.incoming} & elsewhere


@record
class Parts:
    """Of one block's weights: those whose gradient has a part from blocks above, those that no block below uses."""

    begun: frozenset[Storage]
    ending: frozenset[Storage]


def parts_of_gradients(forward: Forward, model: Model) -> list[Parts]:
    """What each block of a recorded pass finds and leaves; a block whose record stands for several is told apart."""
    used = _weights_by_run(forward, model)
    begun: list[frozenset[Storage]] = []
    seen: set[str | Storage] = set()
    for weights in reversed(used):
        begun.insert(0, frozenset(storage for storage, weight in weights.items() if weight in seen))
        seen.update(weights.values())
    seen.clear()
    parts = []
    for above, weights in zip(begun, used, strict=True):
        parts.append(Parts(above, frozenset(storage for storage, weight in weights.items() if weight not in seen)))
        seen.update(weights.values())
    return parts


def _weights_by_run(forward: Forward, model: Model) -> list[dict[Storage, str | Storage]]:
    """The weights that each block trains: their storages in its record, and what they are in the model."""
    ran = {run.modality for run in forward.runs}
    blocks = [block for block in model.blocks if block.modality in ran]
    if len(forward.runs) < len(blocks):
        blocks = [block for block in blocks if not block.tiled]
    names = [tuple(parameter.tied_to or parameter.name for parameter in block.parameters) for block in blocks]
    recorded: dict[Storage, str] = {}
    for run, own in zip(forward.runs, names, strict=False):
        for storage, place in run.weights:
            recorded.setdefault(storage, own[place])
    found: list[dict[Storage, str | Storage]] = []
    alike = {id(run): run for run in forward.runs}
    weights = {name: _trained(run) for name, run in alike.items()}
    for i, run in enumerate(forward.runs):
        own = names[i] if i < len(names) else ()
        here = {storage: own[place] for storage, place in run.weights if place < len(own)}
        found.append({storage: here.get(storage, recorded.get(storage, storage)) for storage in weights[id(run)]})
    return found


def _trained(run: BlockRun) -> set[Storage]:
    inputs = (tensor for node in run.nodes for tensor in node.inputs)
    return {tensor.storage for tensor in inputs if tensor.storage.kind == "parameter" and tensor.requires_grad}


def cached_casts(run: BlockRun, own: list[Storage]) -> list[Storage]:
    """16-bit copies of weights among what a block saves that autocast keeps until it ends: those of trained ones.

    torch 2.13 aten/src/ATen/autocast_mode.cpp, cached_cast.
    """
    outputs = (tensor for node in run.nodes for tensor in node.outputs)
    trained = {t.storage for t in outputs if t.storage.kind == "weight_copy" and t.requires_grad}
    return [storage for storage in own if storage in trained]
