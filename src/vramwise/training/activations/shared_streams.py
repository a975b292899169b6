"""Streams that several checkpointed layers read as they are: autograd keeps one tensor, not one for each layer.

Gemma 3n and 4 hand every layer a slice of the same embeddings and later layers the keys and values of earlier ones,
decoders read one encoder's output. A slice is a view: torch.utils.checkpoint keeps the whole storage, once.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.models.autograd.size import Dim, total
from vramwise.models.autograd.tensor import Storage
from vramwise.models.blocks import Block
from vramwise.models.step import BlockRun, Forward
from vramwise.records import record
from vramwise.training.activations.checkpointing import kept_storages
from vramwise.training.resolved import ResolvedTrain


@record
class SharedStreams:
    """Bytes that stand once for the whole pass, and what recordings therefore do not count among what they keep."""

    nbytes: Dim = 0
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
    several = [storages for storages in readers.values() if len(storages) > 1]
    alone = {storages[0] for storages in readers.values() if len(storages) == 1}
    elsewhere = {storage for run in forward.runs if not checkpointed[id(run)] for storage, _ in run.saved}
    once = {storage for storages in several for storage in storages} - alone
    held = {storages[0]: storages[0].nbytes for storages in several if storages[0] in once - elsewhere}
    once |= {
        storage for run in forward.runs if checkpointed[id(run)] for storage in _kept_before(run, forward, elsewhere)
    }
    return SharedStreams(total(held.values()), frozenset(once))


def _kept_before(run: BlockRun, forward: Forward, elsewhere: set[Storage]) -> set[Storage]:
    """What a layer reads that a block below it keeps already, such as embedded tokens that want a gradient.

    Only where the record is that of one layer: equal ones read other tensors.
    """
    if sum(other is run for other in forward.runs) > 1:
        return set()
    return {tensor.storage for tensor in run.incoming} & elsewhere
