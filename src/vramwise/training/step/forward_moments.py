"""The moments of a micro-batch until its backward pass begins."""

from __future__ import annotations

from vramwise.frameworks import framework_of
from vramwise.training.activations.sizes import RunBytes
from vramwise.training.components import Component
from vramwise.training.recipe.settings import autocasts, longest_comes_first
from vramwise.training.step.forward_pass import largest_in_forward
from vramwise.training.step.moment import Moment
from vramwise.training.step.state import SCALAR_BYTES, StepState


def forward_moments(state: StepState) -> list[Moment]:
    """Forward, loss where the stage has one, and what is left when both are over."""
    loss = state.blocks.loss
    around_loss = [] if loss is None else [_loss(state, loss), _forward_return(state)]
    return [_forward(state), *around_loss, _forward_end(state)]


def _forward(state: StepState) -> Moment:
    """The largest live set before the loss, with the logits of the last step where litgpt's loop names them."""
    blocks = state.blocks
    peak = largest_in_forward(blocks.runs, blocks.activations_below, blocks.casts_below)
    parts = state.until_backward() | {
        Component.ACTIVATIONS: blocks.masks + blocks.waiting + peak.activations,
        Component.WEIGHT_CASTS: peak.weight_casts,
        Component.LOGITS_AND_LOSS: _logits_of_last_step(state),
        Component.FORWARD_TEMPORARIES: peak.temporaries,
    }
    return Moment("forward", parts, peak.operation)


def _loss(state: StepState, loss: RunBytes) -> Moment:
    """Logits and their copies, while forward's frames still hold the outputs."""
    blocks, peak = state.blocks, loss.forward_peak
    parts = state.until_backward(gathered=state.exchanged.at_loss) | {
        Component.ACTIVATIONS: blocks.saved.activations,
        Component.WEIGHT_CASTS: blocks.saved.weight_casts + blocks.forward_casts,
        Component.LOGITS_AND_LOSS: peak.total + blocks.bytes_of(state.shape.logits_in_loss),
        Component.OUTPUTS_HELD: blocks.outputs_held,
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
    logits = blocks.saved.logits_loss + blocks.bytes_of(state.shape.logits_in_outputs)
    if blocks.logits_in_loop:  # litgpt: while the head makes them, those of the last step beside them
        made = max(run.forward_peak.temporaries for run in blocks.runs if run.is_head)
        logits = _logits_of_last_step(state) + made
    parts = state.until_backward(gathered=state.exchanged.at_loss) | {
        Component.ACTIVATIONS: blocks.saved.activations,
        Component.WEIGHT_CASTS: blocks.saved.weight_casts + casts,
        Component.LOGITS_AND_LOSS: logits + copy + SCALAR_BYTES,
        Component.OUTPUTS_HELD: named,
        Component.INPUTS_OF_LAST_STEP: blocks.lingering,
    }
    return Moment("forward return", parts)


def _forward_end(state: StepState) -> Moment:
    saved = state.blocks.saved
    parts = state.until_backward(gathered=state.exchanged.at_loss) | {
        Component.ACTIVATIONS: saved.activations,
        Component.WEIGHT_CASTS: saved.weight_casts,
        Component.LOGITS_AND_LOSS: saved.logits_loss + SCALAR_BYTES,
    }
    return Moment("forward end", parts)


def _logits_of_last_step(state: StepState) -> int:
    return 0 if longest_comes_first(state.train) else state.blocks.logits_in_loop
