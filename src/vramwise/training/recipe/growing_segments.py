"""Whether segments of torch's allocator grow where a scenario asks for that (expandable_segments)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramwise.frameworks.versions import torch_version
from vramwise.training.resolved import ResolvedTrain

if TYPE_CHECKING:
    from vramwise.hardware import Gpu

GROW_ON_ROCM_SINCE = (2, 12)
"""Pull request 177974 of March 2026, for ROCm 7.0 and later (179930). Until 2.11 c10/cuda/CUDAAllocatorConfig.h
`expandable_segments` warns "not supported on this platform" and is false where PYTORCH_C10_DRIVER_API_SUPPORTED is not
defined, as in c10/hip/CMakeLists.txt."""


def segments_grow(train: ResolvedTrain, gpu: Gpu | None) -> bool:
    """Whether the allocator of the GPU's torch knows such segments."""
    return gpu is None or gpu.vendor != "AMD" or torch_version(train) >= GROW_ON_ROCM_SINCE


def with_segments(train: ResolvedTrain, gpu: Gpu | None) -> ResolvedTrain:
    """The settings with segments as the allocator has them."""
    if train.expandable_segments and not segments_grow(train, gpu):
        return train.replace(expandable_segments=False)
    return train
