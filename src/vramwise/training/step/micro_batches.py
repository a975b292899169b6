"""Which blocks a rank runs for a micro-batch, and which gradients earlier micro-batches left it."""

from __future__ import annotations

from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import bitsandbytes_version
from vramwise.models.model import Model
from vramwise.training.activations.dequantization import INPUTS_LEFT_SINCE
from vramwise.training.activations.sizes import RunBytes
from vramwise.training.exchange.wrapping import wraps_nothing
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import width
from vramwise.training.recipe.settings import execution, longest_comes_first
from vramwise.training.resolved import ResolvedTrain


def gradient_ratio(model: Model, train: ResolvedTrain, placement: Placement) -> tuple[int, int]:
    """A finished gradient's bytes over those with which it left backward: its dtype and its shards.

    One unit around the whole model is reduced when its backward is over: until then all are as they were made.
    """
    if placement.weight_shards > 1 and wraps_nothing(train):
        return 1, 1
    made = train.lora_dtype if train.method in ("lora", "qlora") else execution(train, model).param_dtype
    return width(train.grad_dtype), width(made) * placement.gradient_shards


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
    is_old = bitsandbytes_version(train) < INPUTS_LEFT_SINCE and train.quantization is not None
    return framework_of(train).names_logits and is_old and not longest_comes_first(train)
