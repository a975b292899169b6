"""What libraries take from torch's allocator at their first use, and keep."""

from __future__ import annotations

from vramwise.result import Node

CUBLAS = "cuBLAS work space"
CUBLAS_BYTES = {True: 33_554_432, False: 8_519_680}
HOPPER, AFTER_BLACKWELL = 9.0, 11.0


def cublas_work_space(capability: float | None) -> Node:
    """32 MiB from compute capability 9.0 on, before 8.1; of an unknown card between both.

    Older releases of torch (2.8 among them) have 32 MiB for 9.0 and 10.0 alone, newer ones for 11.x and 12.x too.
    """
    held = CUBLAS_BYTES[capability is not None and capability >= HOPPER]
    either = capability is not None and capability >= AFTER_BLACKWELL
    return Node(
        CUBLAS, held, "derived", CUBLAS_BYTES[False] if either else held,
        CUBLAS_BYTES[True] if capability is None else held,
        source="torch aten/src/ATen/cuda/CublasHandlePool.cpp: 32 MiB from compute capability 9.0 on, before 8.1",
    )  # fmt: skip
