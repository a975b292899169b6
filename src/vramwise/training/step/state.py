"""What the moments of one step are put together from.

One moment of a step, and the moments with critics' activations in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from vramwise.frameworks import framework_of
from vramwise.models.autograd.size import Axes
from vramwise.models.autograd.tensor import ITEM_BYTES
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.training.activations.sizes import StepShape
from vramwise.training.components import Component
from vramwise.training.exchange.communication import Buffers, buffers
from vramwise.training.exchange.offload import offloaded, on_gpu
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import ModelStates, model_states
from vramwise.training.recipe.gradient_life import adds_into_main_gradients, gradient_life
from vramwise.training.recipe.lengths import read_by
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.blocks import Blocks
from vramwise.training.step.gradients import Gradients, gradients_at_step, gradients_of, on_stage

if TYPE_CHECKING:
    from vramwise.training.step.other_models import CriticPass

_OF_ONE_PASS = frozenset({Component.ACTIVATIONS, Component.WEIGHT_CASTS, Component.LOGITS_AND_LOSS})


@record
class Moment:
    """One moment: bytes by component, and the operation at which it is reached."""

    name: str
    parts: Mapping[Component, int]
    operation: str = ""
    layer: int | None = None

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    def of(self, component: Component) -> int:
        """Bytes of one component."""
        return self.parts.get(component, 0)


def with_critics(moments: list[Moment], critics: CriticPass, train: ResolvedTrain) -> list[Moment]:
    """The moments with the critics' activations: beside the policy's in transformers' trainers, else after them."""
    joined = framework_of(train).trainer
    beside = ("forward", "loss", "forward return", "forward end", "backward: head", "backward: layers", "first step")
    found = []
    for moment in moments:
        if joined and moment.name in beside:
            moment = replace(moment, parts={**moment.parts, Component.CRITIC_ACTIVATIONS: critics.kept})
        found.append(moment)
        if moment.name == "backward: layers":
            alone = next(m for m in moments if m.name == ("backward end" if joined else "forward end"))
            rest = {name: size for name, size in alone.parts.items() if joined or name not in _OF_ONE_PASS}
            found.append(Moment("backward: critic", rest | {Component.CRITIC_ACTIVATIONS: critics.peak}))
    return found


SCALAR_BYTES = 512


@record
class StepState:
    """A step of one rank. `stays`: what it has from the first step on; `inputs`: ids, labels, images of a batch;
    `unwrapped`: of the weights that are there twice while Megatron's last buffer is filled."""

    shape: StepShape
    model: Model
    states: ModelStates
    train: ResolvedTrain
    placement: Placement
    axes: Axes
    blocks: Blocks
    exchanged: Buffers
    gradients: Gradients
    stays: Mapping[Component, int]
    inputs: int
    unwrapped: int

    def until_backward(self, *, gathered: int | None = None) -> dict[Component, int]:
        """What is held until a backward pass begins; `gathered`: weights, where they are not as most of the time."""
        held = self.holding(self.gradients.before, self.gradients.whole(waiting=True), gathered)
        stay = self.exchanged.backward_buckets if self.exchanged.buckets_stay else 0
        return held | {Component.GRADIENT_BUCKETS: self.exchanged.buckets + stay}

    def after_backward(
        self, gradients: int, *, gathered: int | None = None, whole: int | None = None
    ) -> dict[Component, int]:
        """What is held when a backward pass is over; `whole`: gradients that are not cut. A loop still names the
        outputs, modules what they made."""
        held = self.holding(gradients, self.gradients.unsharded if whole is None else whole, gathered)
        return held | {
            Component.LOGITS_AND_LOSS: self.blocks.logits_in_loop,
            Component.OUTPUTS_HELD: self.blocks.caches_in_loop,
            Component.GRAPHS_LEFT: self.blocks.graphs_above(-1),
        }

    def holding(self, gradients: int, whole: int, gathered: int | None = None) -> dict[Component, int]:
        """What is held beside what the blocks made."""
        return {
            **self.stays,
            Component.GATHERED_WEIGHTS: self.exchanged.gathered if gathered is None else gathered,
            Component.SECONDARY_WEIGHTS: self.exchanged.secondary,
            Component.UNSHARDED_GRADIENTS: whole,
            Component.GRADIENT_BUCKETS: self.exchanged.buckets,
            Component.GRADIENTS: gradients,
            Component.INPUTS: self.inputs,
        }


def state_of(
    shape: StepShape, model: Model, states: ModelStates, train: ResolvedTrain, placement: Placement, axes: Axes
) -> StepState:
    """The state of one rank at these sizes."""
    exchanged, gradients, stays = _whatever_the_size(model, train, placement)
    unwrapped = 0
    if framework_of(train).gradients.main_buffer:
        from vramwise.training.model_states.main_buffers import main_buffers

        buffers_made = main_buffers(model, train, placement)
        unwrapped = buffers_made[-1].weights if buffers_made else 0
    blocks = Blocks(shape, on_stage(shape.at(axes), placement), train, placement, axes)
    return StepState(
        shape=shape,
        model=model,
        states=states,
        train=train,
        placement=placement,
        axes=axes,
        blocks=blocks,
        exchanged=exchanged,
        gradients=gradients,
        stays=stays,
        inputs=ITEM_BYTES["int64"] * axes["batch"] * (read_by(axes) + axes["sequence"])
        + blocks.bytes_of(shape.brought),
        unwrapped=unwrapped,
    )


@lru_cache(maxsize=4096)
def _whatever_the_size(
    model: Model, train: ResolvedTrain, placement: Placement
) -> tuple[Buffers, Gradients, Mapping[Component, int]]:
    """What a rank has in steps of any micro-batch and sequence."""
    states, exchanged = model_states(model, train, placement), buffers(model, train, placement)
    gradients = gradients_of(model, states, train, placement, exchanged)
    return exchanged, gradients, _stays(model, states, train, placement)


def least_bytes(model: Model, train: ResolvedTrain, placement: Placement) -> int:
    """Bytes that a rank has at its optimizer's step beside what hangs on a micro-batch: with less room no size fits."""
    states = model_states(model, train, placement)
    beside = 0 if gradient_life(train).released else sum(gradients_at_step(states, train))
    return sum(_stays(model, states, train, placement).values()) + beside


def _stays(
    model: Model, states: ModelStates, train: ResolvedTrain, placement: Placement
) -> Mapping[Component, int]:  # fmt: skip
    away, (master, optimizer) = offloaded(train), on_gpu(states, train)
    dummies, others = 0, dict[Component, int]()
    if adds_into_main_gradients(train):
        from vramwise.training.activations.fp8 import dummy_gradient_bytes

        dummies = dummy_gradient_bytes(model, train, placement)
    if train.extra_models:
        from vramwise.training.step.other_models import extra_model_bytes

        others = dict(extra_model_bytes(model, train, placement))
    return {
        Component.WEIGHTS: 0 if away.weights else states.weights + states.frozen_weights,
        Component.BUFFERS: states.buffers,
        Component.ADAPTERS: states.adapter_weights,
        Component.COPIES_IN_8_BITS: states.copies_8_bit,
        Component.DUMMY_GRADIENTS: dummies,
        Component.MASTER_WEIGHTS: master,
        Component.OPTIMIZER_STATES: optimizer,
        **others,
    }
