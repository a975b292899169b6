"""The moments of a training step on one rank, each as named parts in bytes.

A step's peak is the maximum over moments that hold different things:

| moment            | alive besides weights, master copy and optimizer states (and gradients, when accumulated)    |
|-------------------|-----------------------------------------------------------------------------------------------|
| load              | nothing: weights only                                                                         |
| wrapping          | Megatron: all gradients, and weights once more until they are in their buffer                  |
| sharding          | FSDP: the whole quantized model, where every GPU has it until it is cut; ZeRO's stage 3: all  |
|                   | weights of a model that was made outside of `zero.Init`                                       |
| upcast            | LLaMA-Factory, where DeepSpeed gets whole weights: what trains is fp32 before it is narrowed   |
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

from dataclasses import replace

from vramwise.frameworks import framework_of
from vramwise.models.autograd.size import Axes
from vramwise.models.model import Model
from vramwise.training.activations.loss import makes_logits
from vramwise.training.activations.sizes import StepShape, step_shape
from vramwise.training.components import OTHER_MODELS, Component
from vramwise.training.exchange.offload import offloaded
from vramwise.training.exchange.units import most_while_cut
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import ModelStates, model_states
from vramwise.training.model_states.trained import rounded, trained_tensors, width
from vramwise.training.recipe.attention import rows_of
from vramwise.training.recipe.gradient_life import gradient_life
from vramwise.training.recipe.lengths import read_by, step_axes
from vramwise.training.recipe.settings import asks_for_logits
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.backward_moments import Backward
from vramwise.training.step.forward_moments import evaluation_pass, forward_moments
from vramwise.training.step.gradients import gradients_at_step, on_stage
from vramwise.training.step.state import SCALAR_BYTES, Moment, StepState, state_of, with_critics


def stepping_moments(state: StepState) -> list[Moment]:
    """All that comes between the last backward pass and the next forward pass."""
    clips = state.train.clip_grad_norm and state.states.num_trained_tensors
    later = [_later_micro_batch(state)] if state.gradients.grow else []
    return [*later, *([_clipping(state)] if clips else []), *_checks(state), *_as_one(state), _step(state)]


def optimizer_in_backward(state: StepState) -> Moment:
    """The step of a block's largest weight: blocks below are whole, of the gradients there is this one."""
    blocks, most = state.blocks, Moment("optimizer in backward", state.until_backward())
    for i, run in enumerate(blocks.runs):
        first = state.placement.first_layer + blocks.layers_below(i)
        key = first if run.layer is not None else "head" if run.is_head else "embedding"
        gradient, transient = state.states.released.get(key, (0, 0))
        parts = state.until_backward() | {
            Component.ACTIVATIONS: blocks.waiting + blocks.read_again_by_several(i) + blocks.activations_below[i],
            Component.WEIGHT_CASTS: blocks.casts_below[i],
            Component.GRADIENTS: gradient,
            Component.OPTIMIZER_TEMPORARIES: transient,
        }
        most = max(most, Moment(most.name, parts), key=lambda moment: moment.total)
    return most


def evaluation(state: StepState) -> Moment:
    """A pass without autograd, after the gradients went (or beside them)."""
    train, axes, shape, runs = state.train, state.axes, state.shape, state.blocks.runs
    tokens, samples = axes["batch"] * read_by(axes), axes.get("samples", axes["batch"])
    batch, sequence = rows_of(train, train.eval_batch_size or samples, tokens // samples)
    sizes = step_axes(state.model, train, batch, sequence)
    if (batch, sequence) != (axes["batch"], read_by(axes)):  # one row is recorded without the axis
        shape = step_shape(state.model, train, batch, sequence, accumulating=False)
        runs = on_stage(shape.at(sizes), state.placement)
    found = evaluation_pass(
        shape, runs, sizes, logits=makes_logits(train), caches=caches_in_evaluation(state.model, train),
        gathered=state.exchanged.gathered, gathered_at_loss=state.exchanged.at_loss,
        returned=asks_for_logits(train),
    )  # fmt: skip
    gradients = 0 if train.set_to_none else state.gradients.all
    parts = state.holding(gradients, state.gradients.whole(waiting=False), found.gathered) | {
        Component.INPUTS: found.inputs,
        Component.WEIGHT_CASTS: found.casts,
        Component.OUTPUTS_HELD: found.cached,
        Component.FORWARD_TEMPORARIES: found.temporaries,
    }
    return Moment("evaluation", parts, found.operation)


def caches_in_evaluation(model: Model, train: ResolvedTrain) -> bool:
    """Whether an evaluation that a scenario states fills a cache, as configs ask for and no framework turns off."""
    stated = train.eval_batch_size is not None
    return stated and framework_of(train).caches_in_evaluation(train) and bool(model.config.get("use_cache", True))


def plays_evaluations(train: ResolvedTrain, placement: Placement) -> bool:
    """Whether a scenario states evaluations whose blocks are those of one rank that has everything."""
    return train.eval_batch_size is not None and placement.weight_shards == 1 and not train.zero_stage


def _later_micro_batch(state: StepState) -> Moment:
    """A shorter one, whose activations are not counted: a layer's gradient beside the sum that it is added to."""
    held = state.holding(state.gradients.all, state.gradients.unsharded)
    return Moment("later micro-batch", held | {Component.NEW_GRADIENTS: state.exchanged.prefetched})


def _clipping(state: StepState) -> Moment:
    """Norms of all gradients, one fp32 or 16-bit scalar each, and the same stacked (torch 2.13 clip_grad.py)."""
    count, gradients = state.states.num_trained_tensors, state.gradients
    norms = (count + 1) * SCALAR_BYTES + rounded(count * width(state.train.grad_dtype))
    held = state.after_backward(gradients.partition, gathered=0)
    return Moment("clipping", held | {Component.GRADIENT_NORMS: norms})


def _checks(state: StepState) -> list[Moment]:
    """ZeRO's norm of the gradients and search for infinities, one gradient at a time."""
    needed = state.exchanged.check_before_step
    if not needed:
        return []
    held = state.after_backward(state.gradients.partition, gathered=0)
    return [Moment("gradient checks", held | {Component.GRADIENT_CHECKS: needed})]


def _as_one(state: StepState) -> list[Moment]:
    """ZeRO joins its partition of the gradients and casts it to fp32 before the 16-bit ones go."""
    flat, wide = state.states.flat_gradients, state.states.fp32_gradients
    if not wide or not state.train.zero_stage or offloaded(state.train).gradients:
        return []
    own = state.gradients.all if state.train.zero_stage == 3 else flat
    parts = state.holding(own, 0, gathered=0) | {
        Component.GRADIENTS_AS_ONE: flat,
        Component.FP32_GRADIENTS: wide if wide != flat else 0,
    }
    return [Moment("gradients as one", parts)]


def _step(state: StepState) -> Moment:
    away = offloaded(state.train)
    kept, wide = gradients_at_step(state.states, state.train)
    returned = 0
    if state.train.zero_stage:
        from vramwise.training.exchange.zero_buffers import returned_weight_bytes

        returned = returned_weight_bytes(state.train, state.states.master)
    parts = state.after_backward(kept, gathered=0, whole=0) | {
        Component.OPTIMIZER_TEMPORARIES: 0 if away.optimizer else state.states.step_transient,
        Component.FP32_GRADIENTS: wide,
        Component.RETURNED_WEIGHTS: returned,
    }
    return Moment("optimizer step", parts)


__all__ = ["BEFORE_STEPS", "Moment", "step_moments"]

BEFORE_STEPS = ("load", "upcast", "wrapping", "sharding")
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
    cut = [*_sharding(state, load), *_cut_by_zero(state, load)]
    found[1:1] = [*cut, *_upcast(state, cut[-1] if cut else load), *_wrapping(state, load)]
    if state.gradients.released:
        found += [optimizer_in_backward(state), backward.end()]
    else:
        found += [*backward.checks(), *backward.reduction(), backward.end(), *stepping_moments(state)]
    found += [evaluation(state), *first]
    return [Moment(m.name, {k: v for k, v in m.parts.items() if v}, m.operation, m.layer) for m in found]


def _upcast(state: StepState, load: Moment) -> list[Moment]:
    """Trained weights become fp32 on the GPU, in the order of the model; of each there are both for a moment."""
    train, narrow = state.train, width(state.train.param_dtype)
    wide, is_whole = width("fp32"), state.train.zero_stage in (1, 2) or _comes_whole(state.train)
    if not framework_of(train).casts.widens_before_zero or not is_whole or narrow >= wide:
        return []
    grown = most = 0
    for tensor, _ in trained_tensors(state.model, train):
        own = rounded(tensor.numel * wide)
        most = max(most, grown + own)
        grown += own - rounded(tensor.numel * narrow)
    whole = load.of(Component.WHOLE_WEIGHTS)
    return [Moment("upcast", {**load.parts, Component.WHOLE_WEIGHTS: whole + most})] if most else []


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


def _comes_whole(train: ResolvedTrain) -> bool:
    """Whether stage 3 gets a model that nobody cut while it was made, and said so."""
    return train.zero_stage == 3 and train.zero_init is False


def _cut_by_zero(state: StepState, load: Moment) -> list[Moment]:
    """Such a model goes to the GPU whole, in the dtype that DeepSpeed casts it to, and is cut weight by weight there.

    Wherever its weights lie afterwards: DeepSpeed 0.14.4 and 0.18.2 runtime/engine.py `_configure_distributed_model`
    (`self.module.to(self.device)`), zero/parameter_offload.py `_convert_to_zero_parameters`. Each one's part, made
    beside it, is not counted.
    """
    if not _comes_whole(state.train):
        return []
    weights = model_states(state.model, state.train, replace(state.placement, weight_shards=1))
    whole = weights.weights + weights.frozen_weights + weights.adapter_weights
    more = whole - load.of(Component.WEIGHTS) - load.of(Component.ADAPTERS)
    return [Moment("sharding", {**load.parts, Component.WHOLE_WEIGHTS: more})] if more > 0 else []


def _first_step(state: StepState, found: list[Moment]) -> list[Moment]:
    """The largest moment before there are optimizer states: torch's optimizers make them in their first step."""
    from_start = state.train.zero_stage or framework_of(state.train).states_from_start
    if not state.stays[Component.OPTIMIZER_STATES] or from_start:
        return []
    most = max(found, key=lambda moment: moment.total)
    return [Moment("first step", {**most.parts, Component.OPTIMIZER_STATES: 0}, most.operation, most.layer)]
