"""What a rank holds during a step, by part, and sums over the blocks of its stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from vramwise.models.autograd.size import Axes, evaluate
from vramwise.models.model import Model
from vramwise.scenario import TrainSettings
from vramwise.training.activations.dummy_gradients import dummy_gradient_bytes
from vramwise.training.activations.kernels import inputs_kept
from vramwise.training.activations.sizes import RunBytes, StepShape
from vramwise.training.components import Component
from vramwise.training.exchange.communication import Buffers
from vramwise.training.exchange.offload import offloaded
from vramwise.training.exchange.root_unit import root_unit
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import ModelStates
from vramwise.training.recipe.settings import (
    frozen_units_keep_inputs,
    gradients_stay,
    longest_comes_first,
    reduces_in_backward,
    releases_gradients,
)
from vramwise.training.step.micro_batches import (
    inputs_linger,
    numel_below,
)

SCALAR_BYTES = 512
INT64_BYTES = 8


@dataclass(frozen=True, slots=True)
class Forward:
    """What forward leaves, by part."""

    activations: int
    weight_casts: int
    logits_loss: int


class StepState:
    """Sizes that every moment of one step is put together from."""

    def __init__(
        self, shape: StepShape, model: Model, states: ModelStates, train: TrainSettings, placement: Placement,
        axes: Axes, runs: list[RunBytes], exchanged: Buffers, ratio: tuple[int, int], others: Mapping[Component, int],
    ) -> None:  # fmt: skip
        self.exchanged, self.ratio, self.model = exchanged, ratio, model
        self.shape, self.states, self.train, self.placement, self.axes = shape, states, train, placement, axes
        self.runs = runs
        self.releases = releases_gradients(train)
        self.accumulates = gradients_stay(train) or (placement.stages > 1 and not self.releases)
        away = offloaded(train)
        self.others = others
        # Gradients that wait whole come as the longest micro-batch's own backward pass goes on, or are there before it.
        self.grows = longest_comes_first(train) and exchanged.unsharded_gradients > 0
        self.numel_below = numel_below(model)
        self.stays = {
            Component.WEIGHTS: 0 if away.weights else states.weights + states.frozen_weights,
            Component.ADAPTERS: states.adapter_weights,
            Component.COPIES_IN_8_BITS: states.copies_8_bit,
            Component.DUMMY_GRADIENTS: dummy_gradient_bytes(model, train, placement),
            Component.MASTER_WEIGHTS: 0 if away.optimizer else states.master,
            Component.OPTIMIZER_STATES: 0 if away.optimizer else states.optimizer,
            **others,
        }
        self.inputs = 2 * INT64_BYTES * axes["batch"] * axes["sequence"] + int(evaluate(shape.brought, axes))
        at_once = reduces_in_backward(train)
        gradients = states.flat_gradients if train.zero_stage == 1 and at_once else states.gradients
        self.all_gradients = 0 if away.gradients or self.releases else gradients
        self.own_partition = states.flat_gradients if train.zero_stage == 1 and not at_once else self.all_gradients
        self.unsynced = exchanged.unsynced_gradients
        self.root = root_unit(model, train, placement)
        self.kept_gradients = self.all_gradients if self.accumulates and not self.unsynced else 0
        # ZeRO-2 makes its whole partition when the first gradient of it is reduced, for each micro-batch another.
        self.kept_in_backward = self.all_gradients if at_once else self.kept_gradients
        if train.zero_stage == 2 and train.gradient_accumulation_steps > 1 and train.grad_dtype == train.param_dtype:
            self.kept_in_backward = 2 * self.all_gradients
        flight = placement.micro_batches_in_flight
        self.masks = int(evaluate(shape.masks, axes)) + int(evaluate(shape.shared_streams, axes))
        self.logits_in_loop = int(evaluate(shape.logits_in_loop, axes))
        self.lingering = int(evaluate(inputs_kept(shape.recorded), axes)) if inputs_linger(train) else 0
        # Sums over the blocks below and above each block: a moment inside a block costs the same in any depth.
        self.offloads = away.activations
        self.activations_below = [0, *accumulate(self.kept_by(run) for run in runs)]
        self.casts_below = [0, *accumulate(run.weight_casts for run in runs)]
        self.gradients_below = [0, *accumulate(run.weight_gradients for run in runs)]
        self.lowest_layer = next((i for i, run in enumerate(runs) if run.shape.layer is not None), 0)
        self.hooks_keep_inputs = frozen_units_keep_inputs(train)
        self.hooked_above = [0, *accumulate(self.hooked(run) for run in runs)]
        kept = sum(self.kept_by(run) for run in runs if run.shape.name != "loss")
        self.waiting = round((flight - 1) * kept) if flight != 1 else 0
        self.saved = Forward(
            activations=self.masks + kept + self.waiting,
            weight_casts=sum(run.weight_casts for run in runs),
            logits_loss=sum(run.activations for run in runs if run.shape.name == "loss"),
        )

    def kept_by(self, run: RunBytes) -> int:
        """What a block keeps on the GPU until its own backward; with offloading a layer keeps its arguments there."""
        return run.handed_on if self.offloads and run.shape.layer is not None else run.activations

    def held_after_backward(
        self, gradients: int, *, gathered: int | None = None, unsharded: int | None = None
    ) -> dict[Component, int]:
        """What is held when backward is over; litgpt's loop still names the logits."""
        unsharded = self.exchanged.unsharded_gradients if unsharded is None else unsharded
        held = self.held(gradients, gathered=gathered, unsharded=unsharded)
        return held | {Component.LOGITS_AND_LOSS: self.logits_in_loop}

    def held(
        self, gradients: int | None = None, *, gathered: int | None = None, unsharded: int | None = None
    ) -> dict[Component, int]:
        """What is held beside activations; by default what is there before a micro-batch's backward pass begins."""
        return {
            **self.stays,
            Component.GATHERED_WEIGHTS: self.exchanged.gathered if gathered is None else gathered,
            Component.SECONDARY_WEIGHTS: self.exchanged.secondary,
            Component.UNSHARDED_GRADIENTS: self.unsharded(gradients) if unsharded is None else unsharded,
            Component.GRADIENT_BUCKETS: self.exchanged.buckets,
            Component.GRADIENTS: self.kept_gradients if gradients is None else gradients,
            Component.INPUTS: self.inputs,
        }

    def unsharded(self, gradients: int | None = None) -> int:
        """Whole gradients; `gradients`: finished ones, beside which none of earlier micro-batches wait."""
        waiting = self.unsynced if gradients is None else 0
        return waiting + (0 if self.grows else self.exchanged.unsharded_gradients)

    def finished_above(self, index: int) -> int:
        """Gradients of the blocks above, as the step keeps them."""
        if not self.all_gradients or self.unsynced:
            return 0
        return (self.gradients_below[-1] - self.gradients_below[index + 1]) * self.ratio[0] // self.ratio[1]

    def heaviest(self, *, is_head: bool) -> list[int]:
        """Of blocks that share a shape the one with the most below and above it: nothing else tells them apart."""
        most: dict[int, tuple[int, int]] = {}
        for i, run in enumerate(self.runs):
            if (run.head_peak if is_head else run.peak).total:
                held = self.activations_below[i] + self.casts_below[i] + self.finished_above(i)
                held += self.hooked_above[-1] - self.hooked_above[i + 1]
                if held > most.get(id(run), (-1, 0))[0]:
                    most[id(run)] = held, i
        return sorted(i for _, i in most.values())

    def hooked(self, run: RunBytes) -> int:
        """What FSDP 1's hook on a finished frozen layer keeps until backward ends: its input and that one's gradient.

        A unit without trained weights registers its hook on the input of the recomputed layer (torch 2.13
        distributed/fsdp/_runtime_utils.py, _register_post_backward_reshard_only_hook). Under reentrant checkpointing
        that is a leaf, and the hook's reference to its AccumulateGrad node keeps it with its `.grad` for all layers.
        """
        return run.activations + run.stream if self.hooks_keep_inputs and run.shape.checkpointed else 0

    def head_waits(self) -> int:
        """The output layer's whole gradients; FSDP 2 adds those of a later micro-batch to what waits as it is."""
        if not self.unsynced:
            return self.root.waiting
        return self.root.above if self.train.fsdp_version == 1 else 0
