"""What Metal still holds of kernels that were handed to it and have not ended.

MLX encodes a graph far ahead of the GPU. Kernels go into a command buffer until it has more than so many of them, or
until the arrays that it reads and makes, each counted once, have more than so many 2^20 elements (array::data_size, no
bytes); what a kernel reads is kept until its command buffer has ended. Only with more than ten of these on their way
does the encoder wait for one, so that a prompt's chunk holds the arrays of eleven command buffers at once.
(mlx 0.24.0 to 0.32.4 backend/metal/device.cpp needs_commit, set_input_array; backend/metal/eval.cpp eval;
transforms.cpp eval_impl, MAX_ACTIVE_TASKS)
"""

from __future__ import annotations

from collections.abc import Iterable

from vramwise.hardware import Gpu
from vramwise.records import record
from vramwise.serving.mlx.kernels import Kernel

MOST_ACTIVE = 10
_LARGE = ("max", "ultra")


@record
class Limits:
    """Kernels, and 2^20 elements of arrays, beyond which a command buffer is handed over."""

    kernels: int
    elements: int


OF_LARGE = Limits(50, 50)


def limits_of(gpu: Gpu | None) -> Limits:
    """Device::Device: by the last letter of the GPU's architecture, s and d for Max and Ultra."""
    words = () if gpu is None else gpu.name.lower().split()
    return OF_LARGE if any(word in _LARGE for word in words) else Limits(40, 40)


ENOUGH = 3


def most_held(kernels: Iterable[Kernel], limits: Limits, behind: tuple[int, ...] = (MOST_ACTIVE,)) -> tuple[int, ...]:
    """Bytes of made arrays that are alive at once, by how many command buffers the GPU is behind.

    Layers repeat, so that a few times as many command buffers tell.
    """
    steps, buffer_of = _command_buffers(kernels, limits, ENOUGH * max(behind))
    last: dict[object, int] = {}
    for step, number in zip(steps, buffer_of, strict=True):
        for array in (*step.reads, *step.makes):
            last[array.id] = number
    made = [0] * (buffer_of[-1] + 1 if buffer_of else 1)
    ends = made[:]
    for step, number in zip(steps, buffer_of, strict=True):
        for array in step.makes:
            made[number] += array.bytes
            ends[last[array.id]] += array.bytes
    return tuple(_most_alive(made, ends, active) for active in behind)


def _most_alive(made: list[int], ends: list[int], active: int) -> int:
    """The most of what was made and has not ended, at the end of each command buffer."""
    held = most = 0
    for number, size in enumerate(made):
        held += size - (ends[number - active - 1] if number > active else 0)
        most = max(most, held)
    return most


def _command_buffers(kernels: Iterable[Kernel], limits: Limits, until: int) -> tuple[list[Kernel], list[int]]:
    """Kernels, and the number of the command buffer that each goes into, before the one `until`."""
    steps: list[Kernel] = []
    numbers: list[int] = []
    number = count = elements = 0
    seen: set[object] = set()
    for step in kernels:
        for array in (*step.reads, *step.makes):
            if array.id not in seen:
                seen.add(array.id)
                elements += array.elements
        steps.append(step)
        numbers.append(number)
        count += 1
        if count > limits.kernels or elements >> 20 > limits.elements:
            number, count, elements, seen = number + 1, 0, 0, set()
            if number >= until:
                break
    return steps, numbers
