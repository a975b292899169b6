"""What libraries take from torch's allocator at their first use, and keep."""

from __future__ import annotations

from vramwise.result import Node

CUBLAS = "cuBLAS work space"
CUBLAS_BYTES = {True: 33_554_432, False: 8_519_680}
HOPPER = 9.0


def cublas_work_space(capability: float | None) -> Node:
    """32 MiB from compute capability 9.0 on, before 8.1; of an unknown card between both."""
    held = CUBLAS_BYTES[capability is not None and capability >= HOPPER]
    return Node(
        CUBLAS, held, "derived", held, CUBLAS_BYTES[True] if capability is None else held,
        source="torch aten/src/ATen/cuda/CublasHandlePool.cpp: 32 MiB from compute capability 9.0 on, before 8.1",
    )  # fmt: skip
