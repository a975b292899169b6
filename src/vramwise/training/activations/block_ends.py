"""What a block reads from outside and what the model's outputs refer to."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.models.autograd.tensor import Storage
from vramwise.models.blocks import Block
from vramwise.models.step import BlockRun
from vramwise.training.activations.checkpointing import ROTARY_TABLES


def is_head(run: BlockRun) -> bool:
    """Whether a block comes after all layers: final norm and output layer, or the loss."""
    return run.is_behind_layers and reads_layers(run)


def reads_layers(run: BlockRun) -> bool:
    """Whether a block that is no layer takes hidden states: a head, an encoder's last norm, a wider embedding."""
    return run.layer is None and run.modality == "text" and bool(run.incoming)


def output_modules(run: BlockRun) -> frozenset[str]:
    """Modules of the output layer: those of the head that are no norm."""
    return frozenset(
        node.module for node in run.nodes if "norm" not in node.module.lower() and "ln_f" not in node.module
    )


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
    last = [
        tensor.storage
        for node in run.nodes
        if node.module in head and node.op in ("view", "_to_copy")
        for tensor in node.inputs
        if tensor.storage in made_before
    ]
    return last[:1]


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
        last -= {tensor.storage for tensor in run.outgoing}
        found.append(frozenset(last) if reads_layers(run) and run.name != "loss" else frozenset())
        wanted = wanted - set(outputs) | set(inputs)
    return found[::-1]
