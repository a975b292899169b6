"""Accelerators: what they are sold as, what software sees of their memory, how fast they are."""

from .context import context_bytes
from .gpu import Gpu, gpus
from .lookup import GpuMatch, find_gpu
from .memory import MemoryEstimate
from .support import Support

__all__ = ["Gpu", "GpuMatch", "MemoryEstimate", "Support", "context_bytes", "find_gpu", "gpus"]
