"""Accelerators: what they are sold as, what software sees of their memory, how fast they are."""

from vramwise.hardware.context import context_bytes, context_of_torch
from vramwise.hardware.gpu import Gpu, Support, gpus
from vramwise.hardware.lookup import GpuMatch, find_gpu, find_installed_gpu
from vramwise.hardware.memory import MemoryEstimate

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
