"""What memory is held for at a moment of a training step: the components that a moment's tree shows."""

from __future__ import annotations

from enum import StrEnum


class Component(StrEnum):
    """One kind of tensors; its value is the name that it has in results.

    What other models take (`extra_models`) stands under their role.
    """

    WEIGHTS = "weights"
    BUFFERS = "buffers"
    ADAPTERS = "adapters"
    WEIGHTS_BEFORE_THEIR_BUFFER = "weights before their buffer"
    COPIES_IN_8_BITS = "8-bit weights"
    DUMMY_GRADIENTS = "dummy gradients"
    MASTER_WEIGHTS = "master weights"
    OPTIMIZER_STATES = "optimizer states"
    REFERENCE_MODEL = "reference model"
    TEACHER_MODEL = "teacher model"
    REWARD_MODEL = "reward model"
    CRITIC_MODEL = "critic model"
    VALUE_MODEL = "value model"
    WHOLE_WEIGHTS = "whole weights"
    GATHERED_WEIGHTS = "gathered weights"
    SECONDARY_WEIGHTS = "secondary weights"
    UNSHARDED_GRADIENTS = "unsharded gradients"
    GRADIENT_BUCKETS = "gradient buckets"
    GRADIENTS = "gradients"
    NEW_GRADIENTS = "new gradients"
    INPUTS = "inputs"
    INPUTS_OF_LAST_STEP = "inputs of the last step"
    ACTIVATIONS = "activations"
    WEIGHT_CASTS = "weight casts"
    LOGITS_AND_LOSS = "logits and loss"
    OUTPUTS_HELD = "outputs held"
    FORWARD_TEMPORARIES = "forward temporaries"
    BACKWARD_TEMPORARIES = "backward temporaries"
    INPUTS_KEPT_BY_FSDP = "inputs that FSDP keeps"
    GRAPHS_LEFT = "graphs that modules keep"
    REDUCE_SCATTER = "reduce-scatter"
    GRADIENT_NORMS = "gradient norms"
    GRADIENT_CHECKS = "gradient checks"
    GRADIENTS_AS_ONE = "gradients as one"
    FP32_GRADIENTS = "fp32 gradients"
    OPTIMIZER_TEMPORARIES = "optimizer temporaries"
    RETURNED_WEIGHTS = "weights on their way back"
    CRITIC_ACTIVATIONS = "critic activations"


CERTAIN = (
    Component.WEIGHTS, Component.BUFFERS, Component.ADAPTERS, Component.MASTER_WEIGHTS, Component.OPTIMIZER_STATES,
    Component.GRADIENTS, Component.WHOLE_WEIGHTS,
)  # fmt: skip
"""What a step holds for certain: sizes of parameters and of what is kept for each, whatever the sizes of a batch."""

OTHER_MODELS = {
    "reference": Component.REFERENCE_MODEL,
    "teacher": Component.TEACHER_MODEL,
    "reward": Component.REWARD_MODEL,
    "critic": Component.CRITIC_MODEL,
    "value": Component.VALUE_MODEL,
}
"""What another model takes, by its role in `extra_models`."""
