"""Buffers of data parallelism: gathered weights, gradient buckets, reduce-scatter inputs.

    DDP         buckets: a copy of the gradients            torch 2.13 DDP (gradient_as_bucket_view=False)
    FSDP 2      2 gathered units and the root unit;         torch 2.13 distributed/fsdp/_fully_shard
                in backward 1 reduce-scatter input
    FSDP 1      as FSDP 2, and 1 more padded flat gradient  torch 2.13 distributed/fsdp/_runtime_utils.py
    ZeRO-1, -2  a bucket                                    DeepSpeed 0.17 zero/stage_1_and_2.py, config.py
    ZeRO-3      2 gathered units and the root unit; bucket  DeepSpeed 0.17 zero/stage3.py

Units are the decoder layers; the root unit is what stands outside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from vramwise.models.model import Model
from vramwise.scenario import TrainSettings
from vramwise.training.parallel import Placement
from vramwise.training.settings import HUGGING_FACE, execution
from vramwise.training.states import trained_tensors, weight_bytes, width

DEEPSPEED_BUCKET_NUMEL = 500_000_000  # zero/config.py: reduce_bucket_size, allgather_bucket_size
GATHERED_UNITS = 2  # the one in use and the one prefetched


@dataclass(frozen=True, slots=True)
class Buffers:
    """Bytes of communication buffers alive in forward and in backward, and for the whole step."""

    gathered: int = 0
    reduce_scatter: int = 0
    buckets: int = 0


@lru_cache(maxsize=512)
def buffers(model: Model, train: TrainSettings, placement: Placement) -> Buffers:
    """The buffers of one rank (see the module's table)."""
    if placement.data_parallel == 1:
        return Buffers()
    trained = sum(placement.local_numel(base, t.numel) for t, base in trained_tensors(model, train))
    grad = width(train.grad_dtype or "fp32")
    if placement.weight_shards > 1:
        return _sharded(model, train, placement, grad)
    if train.zero_stage in (1, 2):
        numel = _bucket_numel(model, train)
        return Buffers(buckets=min(numel, trained) * width(train.compute_dtype or "bf16"))
    if train.framework == "megatron":  # gradients are reduced in their own buffer
        return Buffers()
    if train.fsdp == "none":
        return Buffers(buckets=trained * grad)
    return Buffers(reduce_scatter=_largest_unit(model, placement) * grad)


def _sharded(model: Model, train: TrainSettings, placement: Placement, grad: int) -> Buffers:
    """FSDP full shard and ZeRO-3: two layers and the root unit are whole."""
    compute = execution(train, model)
    size = width(compute.autocast or compute.param_dtype)
    unit = root = 0
    for block in model.blocks:
        held = 0
        for p in block.parameters:
            if p.tied_to is None and placement.holds(p):
                local = placement.local_numel(p, p.numel)
                held += weight_bytes(p, local, train) if train.quantization else local * size
        if block.layer is None:
            root += held
        else:
            unit = max(unit, held)
    trains_whole = train.method == "full"
    scattered = _largest_unit(model, placement) * grad if trains_whole else 0
    if train.zero_stage == 3:
        scattered = _bucket_numel(model, train) * width(train.compute_dtype or "bf16") if trains_whole else 0
    elif train.fsdp_version == 1:
        scattered *= 2
    return Buffers(gathered=GATHERED_UNITS * unit + root, reduce_scatter=scattered)


def _bucket_numel(model: Model, train: TrainSettings) -> int:
    """Trainer's `auto` makes the bucket hidden² (transformers integrations/deepspeed.py); else DeepSpeed's default."""
    return model.hidden_size**2 if train.framework in HUGGING_FACE else DEEPSPEED_BUCKET_NUMEL


def _largest_unit(model: Model, placement: Placement) -> int:
    units = (
        sum(placement.local_numel(p, p.numel) for p in block.parameters if placement.holds(p))
        for block in model.layers()
    )
    return max(units, default=0)
