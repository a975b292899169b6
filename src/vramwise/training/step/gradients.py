"""How many bytes a rank's gradients take from one micro-batch's backward pass to the optimizer's step.

Which blocks a rank runs for a micro-batch, and which gradients earlier micro-batches left it.
"""

from __future__ import annotations

from vramwise.frameworks.versions import bitsandbytes_version
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.training.activations.sizes import RunBytes
from vramwise.training.exchange.communication import Buffers
from vramwise.training.exchange.offload import offloaded
from vramwise.training.exchange.units import wraps_nothing
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import ModelStates
from vramwise.training.model_states.trained import trained_tensors, width
from vramwise.training.recipe.gradient_life import gradient_life
from vramwise.training.recipe.settings import execution, longest_comes_first, names_logits_of_last_pass
from vramwise.training.resolved import ResolvedTrain


def gradient_ratio(model: Model, train: ResolvedTrain, placement: Placement) -> tuple[int, int]:
    """A finished gradient's bytes over those with which it left backward: its dtype and its shards.

    One unit around the whole model is reduced when its backward is over: until then all are as they were made. Where
    experts' are cut over another number of ranks than the others', it is that of all of them together.
    """
    if placement.weight_shards > 1 and wraps_nothing(train):
        return 1, 1
    made = train.lora_dtype if train.method in ("lora", "qlora") else execution(train, model).param_dtype
    kept, each = width(train.grad_dtype), width(made)
    if placement.gradient_shards > 1:
        bases = [(base, tensor.numel) for tensor, base in trained_tensors(model, train)]
        if any(placement.gradient_shards_of(base) != placement.gradient_shards for base, _ in bases):
            local = [(base, placement.local_numel(base, numel)) for base, numel in bases]
            kept *= sum(placement.gradient_numel(base, numel) for base, numel in local)
            return kept, each * sum(numel for _, numel in local)
    return kept, each * placement.gradient_shards


def on_stage(runs: list[RunBytes], placement: Placement) -> list[RunBytes]:
    """The blocks of one pipeline stage: its layers, the embedding on the first, head and loss on the last."""
    if placement.stages == 1:
        return runs
    kept, layer = [], 0
    for run in runs:
        if run.layer is not None:
            if placement.first_layer <= layer <= placement.last_layer:
                kept.append(run)
            layer += 1
        elif placement.is_last if run.is_head else placement.is_first:
            kept.append(run)
    return kept


def inputs_linger(train: ResolvedTrain) -> bool:
    """Whether the inputs that products with 4-bit weights keep outlive their backward pass until the next logits.

    bitsandbytes before 0.43.2 keeps them as attributes of the autograd node, which backward does not empty, and
    litgpt's loop names the logits, and so their graph, until the next ones (finetune/lora.py fit).
    """
    if train.quantization is None:
        return False
    from vramwise.training.activations.dequantization import INPUTS_LEFT_SINCE

    return bitsandbytes_version(train) < INPUTS_LEFT_SINCE and names_logits_of_last_pass(train)


@record
class Gradients:
    """Bytes of the gradients that stay on the GPU.

    `all`: of all weights, in the dtype and the shards in which the rank keeps them; `partition`: what of them is left
    when ZeRO has reduced them; `before`: those that are there before a micro-batch's backward pass begins;
    `in_backward`: the same from the first reduction on; `unsynced`: of earlier micro-batches, whole; `unsharded`: the
    same where they wait for the end of the step; `grow`: whether those come as the longest micro-batch's own backward
    goes on. `kept_over_made`: a finished gradient's bytes over those with which it left backward.
    """

    all: int
    partition: int
    before: int
    in_backward: int
    unsynced: int
    unsharded: int
    grow: bool
    released: bool
    kept_over_made: tuple[int, int]

    def finished(self, made: int) -> int:
        """Bytes kept of gradients that left backward with `made` bytes; none while whole ones wait."""
        kept, each = self.kept_over_made
        return made * kept // each if self.all and not self.unsynced else 0

    def whole(self, *, waiting: bool) -> int:
        """Whole gradients; `waiting`: while those of earlier micro-batches wait for the last one's."""
        return (self.unsynced if waiting else 0) + (0 if self.grow else self.unsharded)


def all_gradients(states: ModelStates, train: ResolvedTrain) -> int:
    """Bytes of the gradients of all weights that stay on a rank's GPU."""
    life = gradient_life(train)
    if life.released or (offloaded(train).gradients and not (train.zero_stage == 1 and not life.reduced_at_once)):
        return 0  # stage 1 sends them to the host when backward is over (stage_1_and_2.py `reduce_gradients`)
    return states.flat_gradients if train.zero_stage == 1 and life.reduced_at_once else states.gradients


def gradients_at_step(states: ModelStates, train: ResolvedTrain) -> tuple[int, int]:
    """Bytes of the gradients that stand beside an optimizer's step, and of those that ZeRO made fp32 for it."""
    if offloaded(train).gradients:
        return 0, 0
    wide = states.fp32_gradients
    return 0 if wide and train.zero_stage in (1, 2) else all_gradients(states, train), wide


def gradients_of(
    model: Model, states: ModelStates, train: ResolvedTrain, placement: Placement, exchanged: Buffers
) -> Gradients:
    """The gradients of one rank."""
    life = gradient_life(train)
    size, leaves = all_gradients(states, train), offloaded(train).gradients
    stay = life.stays or (placement.stages > 1 and not life.released)
    before = size if stay and not exchanged.unsynced_gradients else 0
    # ZeRO-2 makes its whole partition when the first gradient of it is reduced, for each micro-batch another.
    in_backward = size if life.reduced_at_once else before
    if train.zero_stage == 2 and train.gradient_accumulation_steps > 1 and train.grad_dtype == train.param_dtype:
        in_backward = 2 * size
    return Gradients(
        all=size,
        partition=0
        if leaves
        else states.flat_gradients
        if train.zero_stage == 1 and not life.reduced_at_once
        else size,
        before=before,
        in_backward=in_backward,
        unsynced=exchanged.unsynced_gradients,
        unsharded=exchanged.unsharded_gradients,
        grow=longest_comes_first(train) and exchanged.unsharded_gradients > 0,
        released=life.released,
        kept_over_made=gradient_ratio(model, train, placement),
    )
