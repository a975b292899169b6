"""The recorded forward pass of a micro-batch: as the layers run it, and with what settings make of it."""

from __future__ import annotations

from dataclasses import replace

from vramwise.errors import UnsupportedModelError, ViewError
from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import torch_version
from vramwise.models.execution import Kernels
from vramwise.models.model import Model
from vramwise.models.step import Forward, record_forward
from vramwise.training.activations.loss import with_loss
from vramwise.training.recipe.lengths import lengths
from vramwise.training.recipe.settings import execution
from vramwise.training.resolved import ResolvedTrain

SOFTMAX_LEAVES_ITS_INPUT_SINCE = (1, 11)


def recorded(
    model: Model, train: ResolvedTrain, batch: int, sequence: int, kernels: tuple[Kernels, ...] | None = None
) -> Forward:  # fmt: skip
    """The forward pass of one rank as its layers run it, before what frameworks and losses do in another way.

    `kernels`: libraries in place of those that the settings name. Raises UnsupportedModelError.
    """
    tensor_parallel = train.tensor_parallel_size
    local, expert_parallel = model, train.expert_parallel_size * train.expert_tensor_parallel_size
    if tensor_parallel > 1 or expert_parallel > 1:
        from vramwise.training.layout.sharding import local_model

        local = local_model(model, tensor_parallel, expert_parallel)
    runs = execution(train, model) if kernels is None else replace(execution(train, model), kernels=kernels)
    try:
        tokens, source = lengths(model, train, sequence)
        return record_forward(local, runs, batch=batch, sequence=tokens, source=source)
    except ViewError as error:
        if tensor_parallel == 1:
            raise
        kind = model.config.model_type
        raise UnsupportedModelError(f"tensor parallelism inside layers of {kind} models is not described") from error


def micro_batch(model: Model, train: ResolvedTrain, batch: int, sequence: int) -> Forward:
    """The forward pass of one rank with all that a scenario changes of it: kernels, precision, loss, cuts."""
    forward = recorded(model, train, batch, sequence)
    if train.quantization is not None:
        from vramwise.training.activations.dequantization import with_dequantization

        forward = with_dequantization(forward, train, model.config.model_type)
    if train.precision == "fp8-mixed":
        from vramwise.training.activations.fp8 import with_fp8_products

        forward = with_fp8_products(forward, train)
    if train.compiles_layers:
        from vramwise.training.activations.compiled import with_compiled_layers

        forward = with_compiled_layers(forward)
    forward = with_loss(forward, train, model)
    if torch_version(train) < SOFTMAX_LEAVES_ITS_INPUT_SINCE:
        from vramwise.training.activations.rewriting import with_softmax_inputs

        forward = with_softmax_inputs(forward)
    if train.context_parallel_size > 1:
        from vramwise.training.activations.context_parallel import with_context_parallel

        forward = with_context_parallel(forward, train)
    if train.sequence_parallel:
        from vramwise.training.layout.sharding import with_sequence_parallel

        regathers = framework_of(train).sharding.regathers_sequences
        among = train.expert_tensor_parallel_size
        forward = with_sequence_parallel(
            forward, model, train.tensor_parallel_size, regathers=regathers, experts_among=among
        )
    if train.recompute:
        from vramwise.training.layout.layers_apart import with_layers_apart

        forward = with_layers_apart(forward, train)
    return forward
