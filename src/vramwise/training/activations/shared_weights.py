"""Weights that several blocks use: tied embeddings, layers that share one set of weights.

The gradient of such a weight waits, as one sum, from the first block of backward that makes a part of it until the last
(torch 2.13, `torch/csrc/autograd/input_buffer.cpp`): it is there once, however many blocks add to it.
"""

from __future__ import annotations

from vramwise.models.autograd.tensor import Storage
from vramwise.models.model import Model
from vramwise.models.step import BlockRun, Forward
from vramwise.records import record


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
