"""What a card would hold: every CUDA storage from its birth to its death, placed by the caching allocator's rules."""

from __future__ import annotations

import gc
import inspect
import sys
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch

from vramwise.models.allocator import Block, CachingAllocator

HERE = str(Path(__file__).parent)
OUTSIDE = ("torch_utils.py", "logging_utils/", "model_executor/parameter.py", "vllm/ir/op.py")
"""Files of vLLM whose frames only pass a call on."""


class Allocation(NamedTuple):
    """One block: the module of the model that runs, the function of vLLM that allocates, the tensor, block bytes."""

    module: str
    function: str
    operation: str
    shape: tuple[int, ...]
    dtype: str
    block_bytes: int


@dataclass(eq=False)
class Peak:
    """The fullest moment since `start_bytes` were allocated: bytes above them, and what was allocated since."""

    start_bytes: int
    bytes: int = 0
    live: Counter[Allocation] = field(default_factory=Counter)


class CardMemory:
    """Live blocks of one card, and the peaks that are being watched."""

    def __init__(self, package: str = "vllm") -> None:
        self._folder = f"/{package}/"
        self._allocator = CachingAllocator()
        self._finalizers: dict[int, weakref.finalize[Any, Any]] = {}
        self._since: dict[int, Allocation] = {}
        self._watched: list[Peak] = []
        self._number = 0
        self.module_names: dict[int, str] = {}

    @property
    def allocated(self) -> int:
        """Bytes of `torch.cuda.memory_allocated`."""
        return self._allocator.allocated

    @property
    def peak_allocated(self) -> int:
        """Bytes of `torch.cuda.max_memory_allocated` since `reset_peak`."""
        return self._allocator.peak_allocated

    def reset_peak(self) -> None:
        """`gc.collect`, `empty_cache` and `reset_peak_memory_stats`, as vLLM's memory_profiling calls them."""
        gc.collect()
        self._allocator.empty_cache()
        self._allocator.peak_allocated = self._allocator.allocated

    def watch(self) -> Peak:
        """A peak that grows from now on, above what is allocated now, until `unwatch`."""
        peak = Peak(self.allocated)
        self._watched.append(peak)
        return peak

    def unwatch(self, peak: Peak) -> None:
        """Let a peak rest."""
        self._watched.remove(peak)
        if not self._watched:
            self._since.clear()

    def live(self) -> Counter[Allocation]:
        """What was allocated since a watch began and is alive now."""
        return Counter(self._since.values())

    def born(self, tensor: torch.Tensor, operation: str) -> None:
        """Count the tensor's storage unless it is counted already, until it dies."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._finalizers or not storage.nbytes():
            return
        block, number = self._place(storage.nbytes(), operation, tuple(tensor.shape), str(tensor.dtype)[6:])
        finalizer = weakref.finalize(storage, self._dies, key, number, block)
        finalizer.atexit = False
        self._finalizers[key] = finalizer

    def stays(self, size: int, operation: str) -> None:
        """A block that a library takes from torch's allocator and keeps."""
        self._place(size, operation, (size,), "uint8")

    def passes(self, sizes: Sequence[int], operation: str) -> None:
        """Blocks that live within one call of a library."""
        for block, number in [self._place(size, operation, (size,), "uint8") for size in sizes]:
            self._forget(number, block)

    def _place(self, size: int, operation: str, shape: tuple[int, ...], dtype: str) -> tuple[Block, int]:
        block = self._allocator.take(size)
        self._number += 1
        if self._watched:
            module, function = self._site()
            self._since[self._number] = Allocation(module, function, operation, shape, dtype, block.size)
        for peak in self._watched:
            above = self.allocated - peak.start_bytes
            if above > peak.bytes:
                peak.bytes, peak.live = above, self.live()
        return block, self._number

    def _dies(self, key: int, number: int, block: Block) -> None:
        del self._finalizers[key]
        self._forget(number, block)

    def _forget(self, number: int, block: Block) -> None:
        self._since.pop(number, None)
        self._allocator.free(block)

    def _site(self) -> tuple[str, str]:
        """The innermost module of the model on the stack, and the innermost function of the engine's package."""
        function = ""
        frame: FrameType | None = sys._getframe(3)
        while frame is not None:
            path = frame.f_code.co_filename
            if self._folder in path and not path.startswith(HERE) and not any(part in path for part in OUTSIDE):
                function = function or f"{path.rpartition(self._folder)[2]}:{frame.f_code.co_qualname}"
                module = self.module_names.get(id(_own_object(frame)))
                if module is not None:
                    return module, function
            frame = frame.f_back
        return "", function


def _own_object(frame: FrameType) -> object:
    """What a method's frame calls `self`.

    Up to Python 3.12 `f_locals` of a function is a copy that its frame keeps: left as it is, what the function names
    anew would live on in it, and with it a tensor. In 3.13 it is the frame itself (PEP 667), which is left alone.
    """
    names = frame.f_locals
    found = names.get("self")
    if type(names) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        names.clear()
    return found
