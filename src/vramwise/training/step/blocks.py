"""The blocks of a rank's stage at given sizes, with what those below and above each of them keep.

Tokens of other ranks' batches that a rank's experts receive, beyond an even share (expert parallelism).

An even share is expected. The fullest rank gets `moe_overload_factor` times as many, which the high end of the interval
counts: what its experts keep for backward, or of one layer where they are computed again,

    (factor - 1) · (micro-batches in flight · kept by experts + the most that one layer's experts have beside it)

Megatron-LM logs the factor (`log_overload_factor`: `max_cum_overload_factor` over a step). Experts that drop tokens
take `moe_capacity_factor` even shares at most. Without expert parallelism every token stays on its rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from vramwise.frameworks import framework_of
from vramwise.models.autograd.primitives import primitive
from vramwise.models.autograd.size import Axes, Dim, evaluate
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.training.activations.checkpointing import names_caches
from vramwise.training.activations.sizes import RunBytes, StepShape, step_shape
from vramwise.training.exchange.offload import offloaded
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.trained import rounded
from vramwise.training.recipe.lengths import read_by
from vramwise.training.recipe.settings import frozen_units_keep_inputs
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.gradients import inputs_linger, on_stage

ASSUMED_FACTOR = 1.5
"""Nobody publishes it: a router with a balancing loss keeps its fullest rank below one and a half even shares."""


def overload_factor(model: Model, train: ResolvedTrain) -> float:
    """Even shares of tokens that the fullest rank may get; 1 where experts are not spread over ranks."""
    if train.expert_parallel_size == 1 or all(p.part != "experts" for p in model.parameters):
        return 1.0
    factor = min(train.moe_overload_factor or ASSUMED_FACTOR, train.expert_parallel_size)  # all tokens of all ranks
    return max(1.0, min(factor, train.moe_capacity_factor or factor))


def overload_bytes(model: Model, train: ResolvedTrain, placement: Placement, axes: Axes, *, accumulating: bool) -> int:
    """What the fullest rank needs beyond an even share of tokens."""
    factor = overload_factor(model, train)
    if factor == 1:
        return 0

    def kept(settings: ResolvedTrain) -> list[int]:
        sizes = axes["batch"], read_by(axes)
        shape = step_shape(model, settings, *sizes, accumulating=accumulating)
        return [_kept_by_experts(run, axes) for run in on_stage(shape.at(axes), placement)]

    own = kept(train)
    whole = own if train.checkpointing == "none" else kept(train.replace(checkpointing="none", recompute=()))
    again = max((full - left for full, left in zip(whole, own, strict=True)), default=0)
    return round((factor - 1) * (float(placement.micro_batches_in_flight) * sum(own) + again))


def _inputs_left(shape: StepShape) -> Dim:
    from vramwise.training.activations.dequantization import inputs_kept

    return inputs_kept(shape.recorded)


def _kept_by_experts(run: RunBytes, axes: Axes) -> int:
    return sum(
        evaluate(tensor.nbytes, axes) * tensor.count
        for tensor in run.kept
        if tensor.module.rpartition(".")[2] == "experts"
    )


@record
class Saved:
    """What forward leaves for backward, in bytes."""

    activations: int
    weight_casts: int
    logits_loss: int


def norms_offloaded(run: RunBytes, train: ResolvedTrain, axes: Axes) -> int:
    """Bytes that leave of a block behind the layers where all goes but what the output layer's product reads."""
    goes = offloaded(train).activations and framework_of(train).sharding.offloads_norms
    if not goes or not run.is_head or run.name == "loss":
        return 0
    read = (one for one in run.kept if primitive(one.role.partition(".")[0]).product is not None)
    return run.activations - sum(rounded(evaluate(one.nbytes, axes)) * one.count for one in read)


def named_by_model(runs: Sequence[RunBytes]) -> list[int]:
    """Bytes that the frame of transformers' models names while each layer runs, and nothing else keeps.

    `inputs_embeds`, which is what the first of the layers received (5.23 models/llama/modeling_llama.py LlamaModel
    `hidden_states = inputs_embeds`), and what the layer below returned beside the hidden states.
    """
    found, embedded, has_leaves = [], 0, False
    for i, run in enumerate(runs):
        has_leaves = has_leaves or bool(run.leaves)  # then autograd keeps them
        is_first = i == 0 or runs[i - 1].layer is None
        if is_first:
            embedded = 0 if run.checkpointed or has_leaves else run.incoming - run.incoming_kept
        found.append(0 if is_first or run.layer is None else embedded + runs[i - 1].returned)
    return found


class Blocks:
    """Sums over the blocks below and above each block: a moment inside a block costs the same in any depth.

    `waiting`: what other micro-batches of a pipeline keep; `logits_in_loop`: logits that the loop still names,
    `logits_beside_loss`: of those what the loss does not keep; `lingering`: inputs that outlive their backward pass.
    """

    def __init__(
        self, shape: StepShape, runs: Sequence[RunBytes], train: ResolvedTrain, placement: Placement, axes: Axes
    ) -> None:
        self.shape, self.runs, self._axes = shape, runs, axes
        names = framework_of(train).classes != "own" and placement.stages == 1
        self.named_by_model = named_by_model(runs) if names else [0] * len(runs)
        self._offloads, self._hooks = offloaded(train).activations, frozen_units_keep_inputs(train)
        self.loss = next((run for run in runs if run.name == "loss"), None)
        kept = [self._kept_by(run, train) for run in runs]
        self.activations_below = [0, *accumulate(kept)]
        self.casts_below = [0, *accumulate([run.weight_casts for run in runs])]
        self._gradients_below = [0, *accumulate([run.weight_gradients for run in runs])]
        self._hooked_below = [0, *accumulate([self._hooked(run) for run in runs])]
        self._graphs_below = [0, *accumulate([run.graph_left for run in runs])]
        self._masks = self.bytes_of(shape.masks)
        places = 0 if placement.stages == 1 else len(runs)  # a stage's first block is not the model's
        streams = ((made - places, last - places, size) for made, last, size in shape.shared_streams)
        self._streams = [(made, last, self.bytes_of(size)) for made, last, size in streams]
        self._leaves_below = [0, *accumulate([run.leaves for run in runs])]
        self.logits_in_loop = self.bytes_of(shape.logits_in_loop)
        self.logits_beside_loss = self.bytes_of(shape.logits_beside_loss)
        named = names_caches(shape.recording[0], train)
        self._cached_below = [0, *accumulate([run.cached if named else 0 for run in runs])]
        self._beside_below = [0, *accumulate([run.outputs_held if named and not run.is_head else 0 for run in runs])]
        self.lingering = self.bytes_of(_inputs_left(shape)) if inputs_linger(train) else 0
        self.lowest_layer = next((i for i, run in enumerate(runs) if run.layer is not None), 0)
        before_loss = sum(size for run, size in zip(runs, kept, strict=True) if run.name != "loss")
        flight = placement.micro_batches_in_flight
        self.waiting = round((flight - 1) * before_loss) if flight != 1 else 0
        self.saved = Saved(
            activations=self.read_by_several(len(runs)) + before_loss + self.waiting,
            weight_casts=self.casts_below[-1],
            logits_loss=sum(run.activations for run in runs if run.name == "loss"),
        )

    def bytes_of(self, size: Dim) -> int:
        """A size at this micro-batch and sequence."""
        size_bytes: int = evaluate(size, self._axes)
        return size_bytes

    def read_by_several(self, index: int) -> int:
        """Attention masks, and streams that several layers read, while a block runs: of those made before it."""
        return self._masks + sum(size for made, _, size in self._streams if made < index)

    def read_again_by_several(self, index: int) -> int:
        """The same while a block runs backward: those that it or one below it reads."""
        return self._masks + sum(size for _, last, size in self._streams if last <= index)

    @property
    def outputs_held(self) -> int:
        """What frames and the model's outputs refer to and autograd does not: the last hidden states, caches."""
        return sum(run.outputs_held for run in self.runs)

    @property
    def caches_in_outputs(self) -> int:
        """Of that what the model's outputs refer to."""
        return sum(run.outputs_held for run in self.runs if not run.is_head)

    @property
    def caches_in_loop(self) -> int:
        """Keys and values that the loop's variable names with the outputs, from one pass to the next."""
        return self._cached_below[-1]

    def named_in_backward(self, index: int) -> int:
        """Of those what autograd does not keep itself any more when a block's backward pass begins."""
        above = self._cached_below[-1] - self._cached_below[index + 1]
        return above + self._beside_below[index + 1]

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

    def graphs_above(self, index: int) -> int:
        """What modules above a block keep of their second forward pass; of all blocks for -1."""
        return self._graphs_below[-1] - self._graphs_below[index + 1]

    def leaves_above(self, index: int) -> int:
        """What blocks above one asked the gradient of; as many bytes of gradients stay with it."""
        return self._leaves_below[-1] - self._leaves_below[index + 1]

    def layers_below(self, index: int) -> int:
        return sum(run.layer is not None for run in self.runs[:index])

    def _kept_by(self, run: RunBytes, train: ResolvedTrain) -> int:
        """What a block keeps on the GPU until its own backward; with offloading a layer keeps its arguments there."""
        if self._offloads and run.layer is not None:
            return run.handed_on
        return run.activations - norms_offloaded(run, train, self._axes)

    def _hooked(self, run: RunBytes) -> int:
        """What FSDP 1's hook on a finished frozen layer keeps until backward ends: its input and that one's gradient.

        A unit without trained weights registers its hook on the input of the recomputed layer (torch 2.13
        distributed/fsdp/_runtime_utils.py, _register_post_backward_reshard_only_hook). Under reentrant checkpointing
        that is a leaf, and the hook's reference to its AccumulateGrad node keeps it with its `.grad` for all layers.
        """
        return run.activations + run.stream if self._hooks and run.checkpointed else 0
