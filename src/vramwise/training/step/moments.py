"""The moments of a training step on one rank, each as named parts in bytes.

A step's peak is the maximum over moments that hold different things:

| moment            | alive besides weights, master copy and optimizer states (and gradients, when accumulated)    |
|-------------------|-----------------------------------------------------------------------------------------------|
| load              | nothing: weights only                                                                         |
| wrapping          | Megatron: all gradients, and weights once more until they are in their buffer                  |
| sharding          | FSDP: the whole quantized model, where every GPU has it until it is cut                       |
| forward           | what the blocks so far saved, and one block's live set                                        |
| loss              | everything that forward saved, logits in each of their dtypes                                 |
| forward return    | the same after the loss, and accelerate's fp32 copy of the outputs                            |
| forward end       | everything saved                                                                              |
| backward: head    | everything saved below the head, gradients of the logits                                      |
| backward: layers  | saved tensors of the layers below, gradients of those above, one layer's live set             |
| gradient reduction| FSDP: all gradients, those of the root unit whole, and the input of their reduce-scatter       |
| backward end      | all gradients                                                                                 |
| gradient checks   | ZeRO: what the norm and the search for infinities take; offloading, beside a bucket            |
| clipping          | all gradients, the norm of each                                                               |
| optimizer step    | all gradients, the optimizer's temporaries                                                    |
| later micro-batch | litgpt under FSDP: gradients whole, of one layer twice; its activations are not counted        |
| evaluation        | no gradients; one block's live set without autograd, or logits and loss                       |
| first step        | the largest of forward and backward while the optimizer has no states yet                     |

ZeRO has all of its partition of the gradients in backward, and `gradients as one` before the step: the partition in one
piece, and in fp32. A weight that is stepped in backward has `optimizer in backward` instead: one gradient at a time.
"""

from __future__ import annotations

from vramwise.frameworks import framework_of
from vramwise.models.autograd.size import Axes
from vramwise.models.model import Model
from vramwise.training.activations.sizes import StepShape
from vramwise.training.components import OTHER_MODELS, Component
from vramwise.training.exchange.units import most_while_cut
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import ModelStates
from vramwise.training.recipe.gradient_life import gradient_life
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.backward_moments import Backward
from vramwise.training.step.forward_moments import forward_moments
from vramwise.training.step.last_moments import evaluation, optimizer_in_backward, stepping_moments
from vramwise.training.step.state import Moment, StepState, state_of, with_critics

__all__ = ["BEFORE_STEPS", "Moment", "step_moments"]

BEFORE_STEPS = ("load", "wrapping", "sharding")
"""Moments at which no product has run, so that no library has a workspace."""

_LOADED = (Component.WEIGHTS, Component.BUFFERS, Component.ADAPTERS, *OTHER_MODELS.values())


def step_moments(
    shape: StepShape, model: Model, states: ModelStates, train: ResolvedTrain, placement: Placement, axes: Axes
) -> list[Moment]:
    """Every moment of a steady step (the optimizer's states exist), in order."""
    found = _moments(state_of(shape, model, states, train, placement, axes))
    if not train.extra_models:
        return found
    from vramwise.training.step.other_models import TRAINED, critic_pass, role_of

    if not any(role_of(name) in TRAINED for name in train.extra_models):
        return found
    life = gradient_life(train)
    accumulating = life.stays or life.released or placement.stages > 1
    return with_critics(found, critic_pass(model, train, axes, accumulating=accumulating), train)


def _moments(state: StepState) -> list[Moment]:
    backward = Backward(state)
    load = Moment("load", {name: size for name, size in state.stays.items() if name in _LOADED})
    found = [load, *forward_moments(state), *backward.inside_blocks()]
    first = _first_step(state, found)
    found[1:1] = [*_wrapping(state, load), *_sharding(state, load)]
    if state.gradients.released:
        found += [optimizer_in_backward(state), backward.end()]
    else:
        found += [*backward.checks(), *backward.reduction(), backward.end(), *stepping_moments(state)]
    found += [evaluation(state), *first]
    return [Moment(m.name, {k: v for k, v in m.parts.items() if v}, m.operation, m.layer) for m in found]


def _wrapping(state: StepState, load: Moment) -> list[Moment]:
    """Megatron's last buffer is there, and the weights that go into it still have tensors of their own."""
    if not state.unwrapped:
        return []
    own = {name: size for name, size in load.parts.items() if name not in OTHER_MODELS.values()}  # made later
    made = {Component.GRADIENTS: state.gradients.all, Component.WEIGHTS_BEFORE_THEIR_BUFFER: state.unwrapped}
    return [Moment("wrapping", own | made)]


def _sharding(state: StepState, load: Moment) -> list[Moment]:
    """Where it is said that quantized weights are not cut in host memory; unsaid, reserved memory alone knows."""
    if state.train.cpu_ram_efficient_loading is not False:
        return []
    most = most_while_cut(state.model, state.train, state.placement)
    own = load.of(Component.WEIGHTS) + load.of(Component.ADAPTERS)
    return [Moment("sharding", {**load.parts, Component.WHOLE_WEIGHTS: most - own})] if most > own else []


def _first_step(state: StepState, found: list[Moment]) -> list[Moment]:
    """The largest moment before there are optimizer states: torch's optimizers make them in their first step."""
    from_start = state.train.zero_stage or framework_of(state.train).states_from_start
    if not state.stays[Component.OPTIMIZER_STATES] or from_start:
        return []
    most = max(found, key=lambda moment: moment.total)
    return [Moment("first step", {**most.parts, Component.OPTIMIZER_STATES: 0}, most.operation, most.layer)]
