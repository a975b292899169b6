"""Where each weight of a graph lies, and the bytes of those that do not lie with their layer.

Of a weight on the host a device that takes a product over makes a copy, which has the bytes of the file's type.

Source: llama.cpp src/llama-model.cpp load_tensors, create_tensor (`override_tensor` first, then the layer's device).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from vramwise.models import Block, Model
from vramwise.serving.common.gguf.quantizer import typed_tensors
from vramwise.serving.common.gguf.tensors import LOOKED_UP, GgufTensor, tensors_of
from vramwise.serving.llama_cpp.devices import HOST
from vramwise.serving.llama_cpp.placement import padding_bytes, told_device, told_rules
from vramwise.serving.llama_cpp.settings import DEFAULT_QUANT, Plan

Piece = tuple[str, int, int]
"""A tensor of the file by its name there, its device, and its bytes, if it lies on the host and not in 32 bits."""
Homes = tuple[tuple[Piece, ...], ...]
"""Of a block's parameters in their order: the tensors that each one is in the file."""


def homes_of(model: Model, plan: Plan, blocks: Sequence[Block], devices: Sequence[int]) -> Sequence[Homes]:
    """The homes of each block, whose device is given; empty ones where all of it lies there, on a device."""
    if not plan.devices or not (plan.experts_on_host or plan.settings.override_tensor or HOST in devices):
        return ((),) * len(blocks)
    sizes = _sizes(model, _file_type(plan), plan.imatrix, plan.backend not in ("vulkan", "metal"))
    whole = not plan.settings.override_tensor
    return [
        () if whole and device != HOST and not plan.sends_experts(block.layer)
        else tuple(_homes(plan, tensors, device, sizes))
        for tensors, block, device in zip(_tensors(model), blocks, devices, strict=True)
    ]  # fmt: skip


@lru_cache(maxsize=16)
def _tensors(model: Model) -> tuple[tuple[tuple[GgufTensor, ...], ...], ...]:
    """What each parameter of each block of the language model is in the file."""
    found = []
    for block in (block for block in model.blocks if block.modality == "text"):
        read = {parameter.name: (op, parameter) for op in reversed(block.ops) for parameter in op.parameters}
        found.append(tuple(tuple(tensors_of(block, *read[parameter.name])) for parameter in block.parameters))
    return tuple(found)


def _homes(
    plan: Plan, tensors: Sequence[tuple[GgufTensor, ...]], device: int, sizes: dict[tuple[int | None, str], int]
) -> Iterator[tuple[Piece, ...]]:
    rules = told_rules(plan)

    def piece(tensor: GgufTensor) -> Piece:
        name, layer = tensor.name, tensor.layer
        told = told_device(name, layer, rules)
        if told is None:
            stays = name in LOOKED_UP or (name.endswith("_exps") and plan.sends_experts(layer))
            told = HOST if stays else device
        return name, told, sizes.get((layer, name), 0) if tensor.quantizable and told == HOST else 0

    for pieces in tensors:
        yield tuple(piece(tensor) for tensor in pieces)


@lru_cache(maxsize=64)
def _sizes(model: Model, file_type: str, imatrix: bool, padded: bool) -> dict[tuple[int | None, str], int]:
    """Bytes by layer and name of what may be quantized, with the rows of whole 512 weights that CUDA's buffers have."""
    found: dict[tuple[int | None, str], int] = {}
    for typed in typed_tensors(model, file_type, imatrix):
        if typed.tensor.quantizable:
            size = typed.bytes + (padding_bytes(typed) if padded else 0)
            found[typed.tensor.layer, typed.tensor.name] = size
    tied = found.get((None, "token_embd"))
    if tied is not None:
        found.setdefault((None, "output"), tied)
    return found


def _file_type(plan: Plan) -> str:
    """A mix that only its header tells is taken for the common one."""
    return DEFAULT_QUANT if plan.file_type == "custom" else plan.file_type
