"""The moments of a micro-batch until its backward pass begins.

The largest moment of a forward pass before the loss.

A forward pass without autograd: what it holds at its largest moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vramwise.frameworks import framework_of
from vramwise.models.autograd.size import Axes, evaluate
from vramwise.models.autograd.tensor import ITEM_BYTES
from vramwise.records import record
from vramwise.training.activations.sizes import RunBytes, StepShape
from vramwise.training.components import Component
from vramwise.training.recipe.lengths import read_by
from vramwise.training.recipe.settings import asks_for_logits, autocasts, loss_in_forward, names_logits_of_last_pass
from vramwise.training.step.blocks import Blocks
from vramwise.training.step.state import SCALAR_BYTES, Moment, StepState


@record
class ForwardPeak:
    """Bytes at that moment: what is kept for backward so far, 16-bit copies of weights, and what the block needs.

    `graphs_left`: of the step before, what modules name that have not run again yet.
    """

    activations: int = 0
    weight_casts: int = 0
    temporaries: int = 0
    operation: str = ""
    graphs_left: int = 0

    @property
    def total(self) -> int:
        return self.activations + self.weight_casts + self.temporaries + self.graphs_left


def largest_in_forward(blocks: Blocks) -> ForwardPeak:
    """Inside of each block: what the blocks below keep, what it made until then, and the hidden states it received.

    The frame that calls the layers holds a layer's input until the layer returns; a checkpointed layer keeps it
    anyway. Autocast's copies for checkpointed layers and what the outputs cache stay until the pass is over, and what
    the model's frame names besides until the layers are.
    """
    activations_below, casts_below = blocks.activations_below, blocks.casts_below
    most, most_bytes, passing_casts, cached = ForwardPeak(), 0, 0, 0
    for i, run in enumerate(blocks.runs):
        if run.name == "loss":
            continue
        inside = run.forward_peak
        kept, received = activations_below[i] + blocks.read_by_several(i) + inside.saved, 0
        if run.checkpointed:
            kept += run.activations
        else:
            received = run.incoming if run.layer is not None else run.incoming_kept
        found = ForwardPeak(
            kept + received + blocks.named_by_model[i], casts_below[i] + passing_casts,
            cached + inside.temporaries, inside.operation, blocks.graphs_above(i),
        )  # fmt: skip
        passing_casts += run.forward_casts
        cached += 0 if run.is_head else run.outputs_held
        total = found.total
        if total > most_bytes:
            most, most_bytes = found, total
    return most


_TELLING = 2
"""Blocks of one shape that are looked at: the first has nothing embedded beside it, all others are alike."""


@record
class EvaluationPass:
    """Bytes of ids and labels, of autocast's 16-bit weights, and of everything else where it, the gathered weights and
    the cache are largest, with its place."""

    inputs: int
    casts: int
    gathered: int
    cached: int
    temporaries: int
    operation: str


def evaluation_pass(
    shape: StepShape, runs: Sequence[RunBytes], axes: Axes,
    *, logits: bool, caches: bool, gathered: int, gathered_at_loss: int, returned: bool = False,
) -> EvaluationPass:  # fmt: skip
    """Autocast's casts of trained weights pile up, and keys and values if it `caches`; all else goes after its use.

    `logits`: whether all of them exist at once; the loss then stands beside them and the last hidden states.
    `gathered`, `gathered_at_loss`: bytes of weights that are whole in a block, and while the loss runs. `returned`: the
    model has returned when the loss runs, and with it those casts are gone.
    """
    masks, made = evaluate(shape.unsaved_masks, axes), evaluate(shape.logits_in_loss, axes)
    last_hidden = sum(run.last_hidden for run in runs)
    alive, name, embedded, whole, cached, filled = 0, "", 0, gathered, 0, 0
    all_casts = sum(run.casts for run in runs)
    casts = all_casts
    times = Counter[int]()
    for run in runs:
        times[id(run)] += 1
        below, filled = filled, filled + (run.cached if caches else 0)
        if times[id(run)] > _TELLING and filled == below:
            continue
        size = run.unsaved_peak.total
        if run.layer is not None:
            # The frame that calls the layers keeps what went into the first of them.
            size += run.incoming + run.tables + masks + embedded
            embedded = embedded or run.incoming
        elif run.name == "loss":
            size += made + (0 if returned else last_hidden) if logits else run.incoming
        else:
            size += run.incoming
        here = min(gathered, gathered_at_loss) if run.name == "loss" else gathered
        cast = 0 if returned and run.name == "loss" else all_casts
        if size + here + filled + cast > alive + cached + (whole + casts if name else 0):  # a layer's stay behind it
            alive, name, whole, cached, casts = size, run.unsaved_peak.operation, here, filled, cast
    inputs = ITEM_BYTES["int64"] * axes["batch"] * (read_by(axes) + axes["sequence"])
    return EvaluationPass(inputs, casts, whole, cached, alive, name)


def forward_moments(state: StepState) -> list[Moment]:
    """Forward, loss where the stage has one, and what is left when both are over."""
    loss = state.blocks.loss
    around_loss = [] if loss is None else [_loss(state, loss), _forward_return(state)]
    return [_forward(state), *around_loss, _forward_end(state)]


def _forward(state: StepState) -> Moment:
    """The largest live set before the loss, with the logits of the last step where litgpt's loop names them."""
    blocks = state.blocks
    peak = largest_in_forward(blocks)
    parts = state.until_backward() | {
        Component.ACTIVATIONS: blocks.waiting + peak.activations,
        Component.WEIGHT_CASTS: peak.weight_casts,
        Component.LOGITS_AND_LOSS: _logits_of_last_step(state),
        Component.OUTPUTS_HELD: blocks.caches_in_loop,
        Component.FORWARD_TEMPORARIES: peak.temporaries,
        Component.GRAPHS_LEFT: peak.graphs_left,
    }
    return Moment("forward", parts, peak.operation)


def _loss(state: StepState, loss: RunBytes) -> Moment:
    """Logits and their copies, while forward's frames still hold the outputs."""
    blocks, peak = state.blocks, loss.forward_peak
    returned = asks_for_logits(state.train)  # accelerate's autocast is around the model's forward alone
    parts = state.until_backward(gathered=state.exchanged.at_loss) | {
        Component.ACTIVATIONS: blocks.saved.activations,
        Component.WEIGHT_CASTS: blocks.saved.weight_casts + (0 if returned else blocks.forward_casts),
        Component.LOGITS_AND_LOSS: peak.total + blocks.bytes_of(state.shape.logits_in_loss) + _named_at_loss(state),
        Component.OUTPUTS_HELD: (blocks.caches_in_outputs if returned else blocks.outputs_held + blocks.caches_in_loop),
    }
    return Moment("loss", parts, peak.operation)


def _forward_return(state: StepState) -> Moment:
    """The larger of two: frames that return, with autocast's weight casts; accelerate's fp32 copy of the outputs."""
    blocks, copy = state.blocks, 0
    if framework_of(state.train).trainer and autocasts(state.train):
        copy = blocks.bytes_of(state.shape.outputs_upcast)
    casts, named = blocks.forward_casts, blocks.outputs_held
    if copy > casts + named - blocks.caches_in_outputs:  # then frames are gone
        casts, named = 0, blocks.caches_in_outputs
    else:
        copy = 0
    logits = blocks.saved.logits_loss + blocks.bytes_of(state.shape.logits_in_outputs) + _named_at_loss(state)
    if blocks.logits_in_loop and not loss_in_forward(state.train):  # returned, they take the name of the last step's
        made = max(run.forward_peak.temporaries for run in blocks.runs if run.is_head)
        logits = _logits_of_last_step(state) + made
    parts = state.until_backward(gathered=state.exchanged.at_loss) | {
        Component.ACTIVATIONS: blocks.saved.activations,
        Component.WEIGHT_CASTS: blocks.saved.weight_casts + casts,
        Component.LOGITS_AND_LOSS: logits + copy + SCALAR_BYTES,
        Component.OUTPUTS_HELD: named + (blocks.caches_in_loop if loss_in_forward(state.train) else 0),
        Component.INPUTS_OF_LAST_STEP: blocks.lingering,
    }
    return Moment("forward return", parts)


def _forward_end(state: StepState) -> Moment:
    saved = state.blocks.saved
    parts = state.until_backward(gathered=state.exchanged.at_loss) | {
        Component.ACTIVATIONS: saved.activations,
        Component.WEIGHT_CASTS: saved.weight_casts,
        Component.LOGITS_AND_LOSS: saved.logits_loss + state.blocks.logits_beside_loss + SCALAR_BYTES,
        Component.OUTPUTS_HELD: state.blocks.caches_in_outputs if state.blocks.caches_in_loop else 0,
    }
    return Moment("forward end", parts)


def _named_at_loss(state: StepState) -> int:
    """Logits of the last step while the loss runs: their name is taken when the model's forward returns."""
    return _logits_of_last_step(state) if loss_in_forward(state.train) else 0


def _logits_of_last_step(state: StepState) -> int:
    return state.blocks.logits_in_loop if names_logits_of_last_pass(state.train) else 0
