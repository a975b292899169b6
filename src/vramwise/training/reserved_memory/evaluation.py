"""An evaluation between steps, on the step's allocator: a forward pass without autograd, block by block.

transformers 4.38 trainer.py `evaluation_loop` and `prediction_step`: the model runs under `no_grad`, its outputs
(logits in fp32 under autocast, keys and values where nothing turned the cache off) go when a batch is over, and
nothing empties torch's cache before or after. Blocks of other rows find what steps left free and cut it into pieces:
keys and values that stay lie in the places of what comes and goes, which then takes segments of its own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from vramwise.models.autograd.tensor import Storage
from vramwise.models.forward_walk import walk_forward
from vramwise.models.model import Model
from vramwise.models.step import BlockRun
from vramwise.records import record
from vramwise.training.activations.block_ends import Streams, cached_casts, given_up, named_by_frames, streams_of
from vramwise.training.activations.sizes import StepShape, is_dequantized, step_shape
from vramwise.training.recipe.attention import rows_of
from vramwise.training.recipe.lengths import step_axes
from vramwise.training.reserved_memory.scripts import Script, Scripts, Writer, blocks_run, of_the_batch
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.moments import caches_in_evaluation

if TYPE_CHECKING:
    from vramwise.models.autograd.size import RoundedAxes

PASSES = 2
"""Batches that are played: the second finds what the first one left."""


@record
class EvaluationBatch:
    """What an evaluation runs: its blocks, the axes of its rows."""

    shape: StepShape
    scripts: Scripts
    axes: RoundedAxes


def evaluation_batch(
    model: Model, train: ResolvedTrain, axes: RoundedAxes, batch: int, sequence: int
) -> EvaluationBatch:
    """That of `eval_batch_size` samples as long as those of a step with these rows and axes."""
    assert train.eval_batch_size is not None
    length = batch * sequence // axes.get("samples", batch)
    rows, tokens = rows_of(train, train.eval_batch_size, length)
    shape = step_shape(model, train, rows, tokens, accumulating=False)
    return EvaluationBatch(shape, _scripts_of(shape, model, train), step_axes(model, train, rows, tokens))


@lru_cache(maxsize=64)
def _scripts_of(shape: StepShape, model: Model, train: ResolvedTrain) -> Scripts:
    runs = shape.recorded.runs
    streams = streams_of(blocks_run(model, train), len(runs))
    assert streams is not None
    writer = Writer(model, train, frozenset(), accumulating=False)
    caches = caches_in_evaluation(model, train)
    written: dict[int, Script] = {}
    for run, names, last in zip(runs, streams, given_up(runs, streams), strict=True):
        if id(run) not in written:
            written[id(run)] = _script(writer, run, names, last, caches=caches)
    return Scripts([written[id(run)] for run in runs], list(writer.sizes))


def _script(writer: Writer, run: BlockRun, streams: Streams, last: frozenset[Storage], *, caches: bool) -> Script:
    """Nothing stays for backward; autocast's copies of trained weights stay until forward is over, a cache longer."""
    received = {tensor.storage for tensor in run.incoming}
    saved = (storage for storage, _ in run.saved if storage.kind not in ("input", "registered"))
    casts = cached_casts(run, [storage for storage in saved if not is_dequantized(storage, run, writer.train)])
    cached = [storage for storage in dict.fromkeys(run.for_cache) if storage not in received] if caches else []
    script = writer.begun(run, streams, last, checkpointed=False)
    returned = [*named_by_frames(run), *casts, *cached]
    walk = walk_forward(run, kept=[*casts, *cached], external=of_the_batch(run), given_up=last, returned=returned)
    script.forward = writer.lines(script, walk.events)
    script.casts = [script.place(storage) for storage in casts]
    script.cached = [script.place(storage) for storage in cached]
    return script
