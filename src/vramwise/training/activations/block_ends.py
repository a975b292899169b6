"""What a block reads from outside and what the model's outputs refer to."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Storage
from vramwise.models.step import BlockRun
from vramwise.training.activations.checkpointing import ROTARY_TABLES


def is_head(run: BlockRun) -> bool:
    """Whether a block comes after all layers: final norm and output layer, or the loss."""
    return run.layer is None and run.modality == "text" and bool(run.incoming)


def output_modules(run: BlockRun) -> frozenset[str]:
    """Modules of the output layer: those of the head that are no norm."""
    return frozenset(node.module for node in run.nodes if "norm" not in node.module and "ln_f" not in node.module)


def outputs_held(run: BlockRun) -> list[Storage]:
    """What the model's outputs refer to and autograd does not: the last hidden states; logits are counted apart."""
    if run.name == "loss":
        return []
    saved = {storage for storage, _ in run.saved}
    return [storage for storage in last_hidden(run) if storage not in saved]


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


def last_hidden(run: BlockRun) -> list[Storage]:
    head = output_modules(run)
    made_before = {output.storage for node in run.nodes if node.module not in head for output in node.outputs}
    last = [
        tensor.storage
        for node in run.nodes
        if node.module in head and node.op in ("view", "_to_copy")
        for tensor in node.inputs
        if tensor.storage in made_before
    ]
    return last[:1]
