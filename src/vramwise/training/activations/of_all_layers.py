"""What stands once for all layers: attention masks, and what comes with the batch beside ids."""

from __future__ import annotations

from vramwise.models.autograd.size import Dim, product, total
from vramwise.models.autograd.tensor import ITEM_BYTES
from vramwise.models.model import Model
from vramwise.models.step import Forward
from vramwise.training.activations.checkpointing import kept_storages
from vramwise.training.recipe.settings import execution
from vramwise.training.resolved import ResolvedTrain

_BROUGHT = frozenset({"pixel_values", "input_features", "mask"})


def brought_with_batch(forward: Forward) -> Dim:
    """What comes with the batch beside ids: images, a mask of packed samples."""
    runs = {id(run): run for run in forward.runs}.values()
    inputs = (tensor.storage for run in runs for node in run.nodes for tensor in node.inputs)
    brought = {s: s.nbytes for s in inputs if s.kind == "input" and s.op in _BROUGHT}
    return total(brought.values())


def masks_held(forward: Forward, model: Model, train: ResolvedTrain, *, passing: bool = False) -> Dim:
    """Attention masks, one for each kind of window: arguments of checkpointed layers stay until backward.

    Those that a layer saves are among what it keeps, but in a `passing` forward nothing is saved.
    """
    masks: dict[int | None, Dim] = {}
    own_rows = execution(train, model).hands_out_masks
    saved = set() if passing else {storage for run in forward.runs for storage, _ in run.saved}
    windows = {block.layer: block.caches[0].window if block.caches else None for block in model.layers()}
    for run in {id(run): run for run in forward.runs}.values():
        if kept_storages(run, train) is None:
            continue
        for node in run.nodes:
            for tensor in node.inputs:
                storage = tensor.storage
                if storage.op == "mask" and storage.kind != "input" and storage not in saved:
                    # SDPA's boolean mask of a window is one sequence's, seen once for each of the batch.
                    rows = tensor.shape[1:] if tensor.dtype == "bool" and not own_rows else tensor.shape
                    masks[windows.get(run.layer)] = product(rows) * ITEM_BYTES[tensor.dtype]
    return total(masks.values())
