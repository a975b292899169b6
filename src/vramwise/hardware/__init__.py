"""Accelerators: what they are sold as, what software sees of their memory, how fast they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramwise import come_when_asked_for

if TYPE_CHECKING:
    from vramwise.hardware.gpu import Gpu, Support, gpus
    from vramwise.hardware.lookup import GpuMatch, find_gpu, find_installed_gpu
    from vramwise.hardware.memory import MemoryEstimate, context_bytes, context_of_torch
else:
    __getattr__ = come_when_asked_for(
        __name__,
        {
            "Gpu": "gpu",
            "GpuMatch": "lookup",
            "MemoryEstimate": "memory",
            "Support": "gpu",
            "context_bytes": "memory",
            "context_of_torch": "memory",
            "find_gpu": "lookup",
            "find_installed_gpu": "lookup",
            "gpus": "gpu",
        },
    )

__all__ = [
    "Gpu",
    "GpuMatch",
    "MemoryEstimate",
    "Support",
    "context_bytes",
    "context_of_torch",
    "find_gpu",
    "find_installed_gpu",
    "gpus",
]
