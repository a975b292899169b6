"""The blocks of a rank's stage at given sizes, with what those below and above each of them keep."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from vramwise.models.autograd.size import Axes, Dim, evaluate
from vramwise.records import record
from vramwise.training.activations.dequantization import inputs_kept
from vramwise.training.activations.sizes import RunBytes, StepShape
from vramwise.training.exchange.offload import offloaded
from vramwise.training.layout.parallel import Placement
from vramwise.training.recipe.settings import frozen_units_keep_inputs
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.micro_batches import inputs_linger


@record
class Saved:
    """What forward leaves for backward, in bytes."""

    activations: int
    weight_casts: int
    logits_loss: int


class Blocks:
    """Sums over the blocks below and above each block: a moment inside a block costs the same in any depth.

    `masks`: attention masks, and streams that several layers read; `waiting`: what other micro-batches of a pipeline
    keep; `logits_in_loop`: logits that litgpt's loop still names; `lingering`: inputs that outlive their backward pass.
    """

    def __init__(
        self, shape: StepShape, runs: Sequence[RunBytes], train: ResolvedTrain, placement: Placement, axes: Axes
    ) -> None:
        self.shape, self.runs, self._axes = shape, runs, axes
        self._offloads, self._hooks = offloaded(train).activations, frozen_units_keep_inputs(train)
        kept = [self._kept_by(run) for run in runs]
        self.activations_below = [0, *accumulate(kept)]
        self.casts_below = [0, *accumulate([run.weight_casts for run in runs])]
        self._gradients_below = [0, *accumulate([run.weight_gradients for run in runs])]
        self._hooked_below = [0, *accumulate([self._hooked(run) for run in runs])]
        self.masks = self.bytes_of(shape.masks) + self.bytes_of(shape.shared_streams)
        self.logits_in_loop = self.bytes_of(shape.logits_in_loop)
        self.lingering = self.bytes_of(inputs_kept(shape.recorded)) if inputs_linger(train) else 0
        self.lowest_layer = next((i for i, run in enumerate(runs) if run.layer is not None), 0)
        self.loss = next((run for run in runs if run.name == "loss"), None)
        before_loss = sum(size for run, size in zip(runs, kept, strict=True) if run.name != "loss")
        flight = placement.micro_batches_in_flight
        self.waiting = round((flight - 1) * before_loss) if flight != 1 else 0
        self.saved = Saved(
            activations=self.masks + before_loss + self.waiting,
            weight_casts=self.casts_below[-1],
            logits_loss=sum(run.activations for run in runs if run.name == "loss"),
        )

    def bytes_of(self, size: Dim) -> int:
        """A size at this micro-batch and sequence."""
        size_bytes: int = evaluate(size, self._axes)
        return size_bytes

    @property
    def outputs_held(self) -> int:
        """What frames and the model's outputs refer to and autograd does not: the last hidden states, caches."""
        return sum(run.outputs_held for run in self.runs)

    @property
    def caches_in_outputs(self) -> int:
        """Of that what the model's outputs refer to."""
        return sum(run.outputs_held for run in self.runs if not run.is_head)

    @property
    def forward_casts(self) -> int:
        """Autocast's copies of weights for checkpointed blocks, which stay until forward is over."""
        return sum(run.forward_casts for run in self.runs)

    def gradients_above(self, index: int) -> int:
        """Gradients of the blocks above one, in the dtype in which they leave backward."""
        return self._gradients_below[-1] - self._gradients_below[index + 1]

    def hooked_above(self, index: int) -> int:
        """What FSDP 1's hooks on finished frozen layers above a block keep."""
        return self._hooked_below[-1] - self._hooked_below[index + 1]

    def layers_below(self, index: int) -> int:
        return sum(run.layer is not None for run in self.runs[:index])

    def _kept_by(self, run: RunBytes) -> int:
        """What a block keeps on the GPU until its own backward; with offloading a layer keeps its arguments there."""
        return run.handed_on if self._offloads and run.layer is not None else run.activations

    def _hooked(self, run: RunBytes) -> int:
        """What FSDP 1's hook on a finished frozen layer keeps until backward ends: its input and that one's gradient.

        A unit without trained weights registers its hook on the input of the recomputed layer (torch 2.13
        distributed/fsdp/_runtime_utils.py, _register_post_backward_reshard_only_hook). Under reentrant checkpointing
        that is a leaf, and the hook's reference to its AccumulateGrad node keeps it with its `.grad` for all layers.
        """
        return run.activations + run.stream if self._hooks and run.checkpointed else 0
