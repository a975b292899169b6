"""Layers that checkpointing takes or leaves by their number, told apart where they share one record.

layer:N    every N-th layer                                     torchtitan 0.2 activation_checkpoint.py
block:N    the first N layers of a stage, or of each of its     Megatron-LM --recompute-method block
           virtual stages                                       (core 0.16 transformer/transformer_block.py)
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from vramwise.models.autograd.tensor import Storage
from vramwise.models.step import BlockRun, Forward
from vramwise.training.layout.parallel import stage_ends
from vramwise.training.layout.sharding import renewed_run
from vramwise.training.resolved import ResolvedTrain


def with_layers_apart(forward: Forward, train: ResolvedTrain) -> Forward:
    """The forward pass with every layer marked as recomputed or not, where the settings choose by number."""
    rule = next((name.partition(":") for name in train.recompute if name.startswith(("layer:", "block:"))), None)
    if train.checkpointing != "selective" or rule is None or not rule[2].isdecimal() or len(rule[2]) > 6:
        return forward
    count = sum(run.layer is not None for run in forward.runs)
    chosen = _every(int(rule[2]), count) if rule[0] == "layer" else _first_of_stages(int(rule[2]), count, train)
    made: dict[tuple[int, bool], BlockRun] = {}
    runs: list[BlockRun] = []
    number = 0
    for run in forward.runs:
        if run.layer is None:
            runs.append(run)
            continue
        key = id(run), chosen[number]
        if key not in made:
            is_second = (id(run), not chosen[number]) in made
            marked = replace(run, is_recomputed=chosen[number])
            made[key] = _with_own_weights(marked) if is_second else marked
        runs.append(made[key])
        number += 1
    return Forward(tuple(runs))


def _every(step: int, layers: int) -> list[bool]:
    return [layer % max(1, step) == 0 for layer in range(layers)]


def _first_of_stages(first: int, layers: int, train: ResolvedTrain) -> list[bool]:
    ends = stage_ends(train, layers)
    chosen: list[bool] = []
    for start, end in pairwise(ends):
        each = max(1, (end - start) // train.virtual_pipeline_parallel_size)
        chosen += [place % each < first for place in range(end - start)]
    return chosen


def _with_own_weights(run: BlockRun) -> BlockRun:
    """The same record of another layer: its weights are not those that the first one trains."""
    own = {storage: Storage(storage.nbytes, storage.kind, storage.op, storage.module) for storage, _ in run.weights}
    return replace(renewed_run(run, own), weights=tuple((own[storage], place) for storage, place in run.weights))
