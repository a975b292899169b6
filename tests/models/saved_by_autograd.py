"""What torch.autograd really saves: the real module's forward pass under `saved_tensors_hooks`."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from transformers_models import model_inputs, real_model

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "bf16-mixed": torch.float32, "fp16-mixed": torch.float32}
_AUTOCAST = {"bf16-mixed": torch.bfloat16, "fp16-mixed": torch.float16}


class _Held:
    """A saved tensor for as long as a node of the graph holds it: branches that end in indices die with forward."""

    def __init__(self, tensor: torch.Tensor) -> None:
        # Without its history: an output that its own node saves would otherwise keep the node alive.
        self.tensor = tensor.detach()


def saved_by_autograd(
    config: dict[str, Any], head: str, *, attention: str | dict[str, str], precision: str, batch: int, sequence: int,
    device: str, padding: bool = False, others: Mapping[str, Any] | None = None, trainable: tuple[str, ...] = (),
) -> int:  # fmt: skip
    """Bytes of the unique storages that autograd keeps, parameters excluded, loss included.

    `others` take the place of the inputs that text has; `trainable`: pieces of the names of parameters that train.
    """
    dtype = _DTYPES[precision]
    model = real_model(config, head, device=device, attention=attention, dtype=dtype).train()
    if trainable:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(any(piece in name for piece in trainable))
    inputs = model_inputs(model, head, batch, sequence) if others is None else _cast(others, dtype)
    if padding:
        inputs["attention_mask"] = torch.ones_like(inputs["labels"]).index_fill(1, torch.tensor([0]), 0)
    held: weakref.WeakSet[_Held] = weakref.WeakSet()

    def pack(tensor: torch.Tensor) -> _Held:
        packed = _Held(tensor)
        held.add(packed)
        return packed

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed.tensor), _autocast(device, precision):
        outputs = model(**inputs)
    # Not before: a router that casts its weights on the way frees storages whose addresses others then take.
    parameters = {_storage(parameter) for parameter in model.parameters()}
    storages = {_storage(packed.tensor): packed.tensor.untyped_storage().nbytes() for packed in held}
    total = sum(nbytes for storage, nbytes in storages.items() if storage not in parameters)
    del outputs
    return total


def _cast(inputs: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Pixels in the parameters' dtype."""
    floats = {name for name, value in inputs.items() if isinstance(value, torch.Tensor) and value.is_floating_point()}
    return {name: value.to(dtype) if name in floats else value for name, value in inputs.items()}


def _autocast(device: str, precision: str) -> Any:
    if precision not in _AUTOCAST:
        return nullcontext()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        context = torch.autocast(device, dtype=_AUTOCAST[precision])
    context._enabled = True  # it switches itself off where torch finds no CUDA
    return context


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
