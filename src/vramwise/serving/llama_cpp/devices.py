"""Which device holds which layer.

Sources: ggml-org/llama.cpp src/llama-model.cpp load_tensors (split points in 32-bit floats, upper_bound over them) and
src/llama.cpp llama_prepare_model_devices; ikawrakow/ik_llama.cpp src/llama.cpp llm_load_tensors (since March 2026 the
split points are bytes of layers and their cache, not layers).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from vramwise.serving.llama_cpp.settings import Plan

HOST = -1


def layer_devices(plan: Plan, sizes: Sequence[int] = ()) -> tuple[int, ...]:
    """Device of every layer and, last, of the output; HOST for what stays there.

    `sizes` are the bytes of each layer and of the output, by which ik_llama.cpp splits; it also charges every device
    its compute buffer, which is not counted here (with equal shares it cancels).
    """
    first, held = plan.first_gpu_layer, min(plan.gpu_layers, plan.num_layers + 1)
    slots = plan.num_layers + 1
    found = [HOST] * slots
    if plan.splits_by_bytes and sizes:
        return _by_bytes(found, first, first + held, split_points(plan.shares), sizes)
    points = split_points(plan.shares)
    for slot in range(first, min(slots, first + held)):
        found[slot] = min(bisect_right(points, _single((slot - first) / held)), plan.devices - 1)
    return tuple(found)


def split_points(shares: Sequence[float]) -> tuple[float, ...]:
    """Where each device's part ends, of 1; sums and quotients in 32-bit floats as the engine works them out."""
    sums = [_single(value) for value in accumulate((_single(share) for share in shares), lambda a, b: _single(a + b))]
    if sums and not sums[-1]:  # shares too small for such floats
        return split_points((1.0,) * len(shares))
    return tuple(_single(value / sums[-1]) for value in sums)


def _by_bytes(
    found: list[int], first: int, last: int, points: Sequence[float], sizes: Sequence[int]
) -> tuple[int, ...]:
    """Layers in order to the device whose part they fill, the one across the border to where more of it lies."""
    total, filled = sum(sizes[first:last]), 0
    slot = first
    for slot in range(first, min(last, len(found))):
        found[slot] = len(points) - 1
    slot = first
    for device, point in enumerate(points):
        part = point * total
        while slot < last and filled + sizes[slot] <= part:
            found[slot], filled, slot = device, filled + sizes[slot], slot + 1
        if slot < last and filled + sizes[slot] - part < part - filled:
            found[slot], filled, slot = device, filled + sizes[slot], slot + 1
    return tuple(found)


def _single(value: float) -> float:
    """The nearest 32-bit float."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded
