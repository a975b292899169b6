"""The moments of a backward pass: inside its blocks, at the last reduction, and when it is over."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from vramwise.frameworks import framework_of
from vramwise.memo import of_model
from vramwise.models.model import Model
from vramwise.models.moments import Peak
from vramwise.training.components import Component
from vramwise.training.exchange.units import RootUnit, root_unit
from vramwise.training.recipe.gradient_life import gradient_life
from vramwise.training.step.state import SCALAR_BYTES, Moment, StepState
from vramwise.training.zero3 import BELOW, HEAD

if TYPE_CHECKING:
    from vramwise.training.exchange.zero_buffers import Check, Place


class Backward:
    """A backward pass; `root`: FSDP's unit of what stands outside the layers, which is reduced last."""

    def __init__(self, state: StepState) -> None:
        self.state, self.blocks, self.exchanged, self.gradients = state, state.blocks, state.exchanged, state.gradients
        self.root: RootUnit = root_unit(state.model, state.train, state.placement)

    def inside_blocks(self) -> list[Moment]:
        """The largest moments of the output layer and the loss, and of all other blocks."""
        runs, heads = self.blocks.runs, self._heaviest(is_head=True)
        head = max((self._head(i) for i in heads), key=lambda moment: moment.total, default=None)
        heaviest = self._heaviest(is_head=False)
        inside = [self._inside(i, runs[i].peak, "backward: layers") for i in heaviest]
        if self.exchanged.one_piece:
            inside += [self._in_one_piece(i) for i in heaviest if runs[i].layer is not None]
        nothing = Moment("backward: layers", self.state.until_backward())
        layers = max(inside, key=lambda moment: moment.total, default=nothing)
        return [layers] if head is None else [head, layers]

    def reduction(self) -> list[Moment]:
        """The last reduce-scatter: FSDP's root unit beside its input, all other gradients done."""
        state, root, gradients = self.state, self.root, self.gradients
        if not root.scattered or not gradients.all:
            return []
        done, whole = gradients.all - (0 if gradients.before else root.share), root.unsharded
        with_frozen = framework_of(state.train).gradients.deferred_with_frozen
        if gradients.unsynced and state.train.fsdp_version == 1 and with_frozen:
            done, whole = 0, gradients.unsynced + whole  # of an earlier one
        held = state.after_backward(done, gathered=root.gathered, whole=whole)
        return [Moment("gradient reduction", held | {Component.REDUCE_SCATTER: root.scattered + root.recast})]

    def checks(self) -> list[Moment]:
        """The largest reduction of an offloading ZeRO: what it takes to look at the gradients of a bucket.

        What a block has made in backward by then is not counted.
        """
        found = [self._check(check) for check in self.exchanged.checks]
        return [max(found, key=lambda moment: moment.total)] if found else []

    def _check(self, check: Check) -> Moment:
        index, at = self._index_of(check.place), self.end()
        if index is not None:
            at = self._inside(index, Peak("split backward", "", 0, 0, 0), "backward end")
        parts = {
            **at.parts,
            Component.GRADIENT_BUCKETS: self.exchanged.buckets + self.exchanged.backward_buckets,
            Component.REDUCE_SCATTER: 0,
            Component.GRADIENTS: at.of(Component.GRADIENTS) + check.alone,
            Component.GRADIENT_CHECKS: check.nbytes,
        }
        return Moment("gradient checks", parts, at.operation, at.layer)

    def _index_of(self, place: Place | None) -> int | None:
        """The block in whose backward pass a gradient comes; None: after all of them, as the first block's do."""
        blocks, first = self.blocks, self.state.placement.first_layer
        for i, run in enumerate(blocks.runs):
            if (run.layer is not None and place == first + blocks.layers_below(i)) or (run.is_head and place == "head"):
                return i
        return None

    def end(self) -> Moment:
        """All gradients."""
        state, gathered = self.state, None
        if state.train.fsdp != "none":
            gathered = self.exchanged.at_loss
        elif self.exchanged.by_call is not None:
            gathered = self.exchanged.by_call.after_backward
        parts = state.after_backward(self.gradients.all, gathered=gathered)
        return Moment("backward end", parts | (self._last_bucket() if state.train.zero_stage else {}))

    def _last_bucket(self) -> dict[Component, int]:
        """The last bucket of a backward pass; stage 1 begins to reduce then, with a partition for what it keeps."""
        exchanged, gradients, train = self.exchanged, self.gradients, self.state.train
        is_new = train.zero_stage == 1 and not gradient_life(train).reduced_at_once and gradients.all > 0
        return {
            Component.GRADIENTS: gradients.in_backward if train.zero_stage == 2 else gradients.all,
            Component.GRADIENT_BUCKETS: exchanged.buckets + exchanged.backward_buckets,
            Component.REDUCE_SCATTER: exchanged.reduce_scatter,
            Component.GRADIENTS_AS_ONE: gradients.partition if is_new else 0,
        }

    def _heaviest(self, *, is_head: bool) -> list[int]:
        """Of blocks that share a shape the one with the most below and above it: nothing else tells them apart."""
        most: dict[int, tuple[int, int]] = {}
        blocks, finished = self.blocks, self.gradients.finished
        for i, run in enumerate(blocks.runs):
            if (run.head_peak if is_head else run.peak).total:
                held = blocks.read_again_by_several(i) + blocks.activations_below[i] + blocks.casts_below[i]
                held += blocks.hooked_above(i) + blocks.graphs_above(i) + 2 * blocks.leaves_above(i)
                held += finished(blocks.gradients_above(i))
                if held > most.get(id(run), (-1, 0))[0]:
                    most[id(run)] = held, i
        return sorted(i for _, i in most.values())

    def _head(self, index: int) -> Moment:
        return self._inside(index, self.blocks.runs[index].head_peak, "backward: head")

    def _inside(self, index: int, peak: Peak, name: str) -> Moment:
        """A moment inside one block's backward: blocks below are whole, blocks above are done."""
        blocks, exchanged = self.blocks, self.exchanged
        run = blocks.runs[index]
        own_kept = run.activations + run.weight_casts if run.checkpointed else 0
        in_loss = run.name == "loss"
        in_logits = peak is run.head_peak and "norm" not in peak.module
        layer = None
        if run.layer is not None:  # equal layers share one shape, so the number is counted
            layer = self.state.placement.first_layer + blocks.layers_below(index)
        gathered = self._gathered(index, layer, is_head=name == "backward: head")
        finished = self.gradients.finished(blocks.gradients_above(index))
        gradients, whole = self.gradients.in_backward + finished, self._whole(index, in_logits=in_logits)
        if self.state.placement.gradient_shards > 1:  # the block's own are reduced when all of them are there
            whole += peak.weight_gradients
        else:
            gradients += peak.weight_gradients
        parts = self.state.holding(gradients, whole, gathered) | {
            Component.ACTIVATIONS: blocks.waiting
            + blocks.read_again_by_several(index)
            + blocks.activations_below[index]
            + blocks.leaves_above(index)
            + own_kept
            + (0 if in_loss else peak.saved),
            Component.WEIGHT_CASTS: blocks.casts_below[index],
            Component.LOGITS_AND_LOSS: (blocks.logits_beside_loss + peak.saved if in_loss else blocks.logits_in_loop)
            + (peak.temporaries if in_logits else 0)
            + SCALAR_BYTES,
            Component.OUTPUTS_HELD: blocks.named_in_backward(index),
            Component.BACKWARD_TEMPORARIES: blocks.leaves_above(index) + (0 if in_logits else peak.temporaries),
            Component.INPUTS_KEPT_BY_FSDP: blocks.hooked_above(index),
            Component.GRAPHS_LEFT: blocks.graphs_above(index),
            Component.REDUCE_SCATTER: 0 if in_logits else exchanged.reduce_scatter,
            Component.GRADIENT_BUCKETS: exchanged.buckets
            + (
                0
                if in_logits and not (exchanged.buckets_first or exchanged.buckets_stay)
                else exchanged.backward_buckets
            ),
        }
        return Moment(name, parts, peak.operation, layer)

    def _gathered(self, index: int, layer: int | None, *, is_head: bool) -> int:
        """Gathered weights while a block's backward runs."""
        exchanged, lowest = self.exchanged, self.blocks.lowest_layer
        if exchanged.by_call is not None:
            outside = HEAD if self.blocks.runs[index].is_head else BELOW
            place = outside if layer is None else layer
            return exchanged.by_call.backward.get(place, exchanged.by_call.after_forward)  # a head may have no weights
        if index == lowest:  # nothing is left to gather ahead
            return exchanged.gathered - exchanged.prefetched
        if index < lowest and self.root.scattered:  # behind the embedding no layer is left to gather
            return exchanged.between_layers
        if self.blocks.runs[index].name == "loss":
            return exchanged.behind_head
        return exchanged.at_head if is_head else exchanged.gathered

    def _whole(self, index: int, *, in_logits: bool) -> int:
        """Gradients that are not cut while a block's backward runs."""
        gradients, below = self.gradients, numel_below(self.state.model)
        if gradients.grow:
            return gradients.unsharded * (below[-1] - below[min(index + 1, len(below) - 1)]) // below[-1]
        above_layers = in_logits or (self.blocks.runs[index].layer is None and index >= self.blocks.lowest_layer)
        return gradients.whole(waiting=True) + (0 if above_layers else self._head_waits())

    def _head_waits(self) -> int:
        """The output layer's whole gradients; FSDP 2 adds those of a later micro-batch to what waits as it is."""
        if not self.gradients.unsynced:
            return self.root.waiting
        return self.root.above if self.state.train.fsdp_version == 1 else 0

    def _in_one_piece(self, index: int) -> Moment:
        """A layer's backward is over: FSDP 1 joins its gradients before it reduces and frees what was gathered."""
        joined = self._inside(index, Peak("split backward", "", 0, 0, 0), "backward: layers")
        run, piece = self.blocks.runs[index], self.exchanged.one_piece
        kept = run.activations + run.weight_casts if run.checkpointed else 0
        parts = {
            **joined.parts,
            Component.ACTIVATIONS: joined.of(Component.ACTIVATIONS) - kept,
            Component.UNSHARDED_GRADIENTS: joined.of(Component.UNSHARDED_GRADIENTS) + piece,
            Component.REDUCE_SCATTER: piece,
        }
        return Moment(joined.name, parts, joined.operation, joined.layer)


@of_model
def numel_below(model: Model) -> tuple[int, ...]:
    """Parameters of the blocks below each block, and of all of them, each in the first block that has it."""
    met: set[str] = set()
    counts = []
    for block in model.blocks:
        new = {p.name: p.numel for p in block.parameters if not block.tiled or p.name not in met}
        counts.append(sum(new.values()))
        met |= new.keys()
    return (0, *accumulate(counts))
