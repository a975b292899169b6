"""FLOPs of matrix products by the shapes that a trace recorded with `record_shapes=True` has."""

from __future__ import annotations

import json
from functools import lru_cache
from math import prod
from typing import Any

from vramwise.utilization.profiler.batches import LARGEST

PRODUCTS = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0, "aten::baddbmm": 1, "aten::_scaled_mm": 0}
"""Matrix products that no other of these calls, with the place of their first factor."""


def product_flops(dims: Any, first: int) -> int:
    """2 m k n of a product by its factors' shapes, times the batch where they have one; 0 for other shapes."""
    if dims is None or isinstance(dims, list | dict | str | int | float):  # what the standard library read
        return _flops(dims, first)
    return _flops_of_text(bytes(dims), first)


@lru_cache(1024)
def _flops_of_text(text: bytes, first: int) -> int:
    try:
        return _flops(json.loads(text), first)
    except (ValueError, RecursionError):
        return 0


def _flops(shapes: Any, first: int) -> int:
    try:
        *batch, m, k = shapes[first]
        *_, other_k, n = shapes[first + 1]
    except (TypeError, ValueError, IndexError, KeyError):
        return 0
    sizes = [*batch, m, k, n]
    if k != other_k or set(map(type, sizes)) != {int}:
        return 0
    flops = 2 * prod(sizes)
    return flops if 0 < flops < LARGEST else 0
