"""What PyTorch's caching allocator counts as allocated for a tensor.

Rules of c10/cuda/CUDACachingAllocator.cpp (torch 2.x): sizes go up to 512 bytes; a tensor of 10 MiB or more gets a
segment of whole 2 MiB, and what is left of it is split off only when it is more than 1 MiB, so that less stays
part of the tensor's block and counts as allocated.
"""

from __future__ import annotations

from vramwise.units import MIB, round_up

ROUNDING = 512
SMALL_SIZE = MIB
SEGMENT_FROM = 10 * MIB
SEGMENT_MULTIPLE = 2 * MIB


def block_bytes(size: int) -> int:
    """Bytes that `torch.cuda.memory_allocated` shows for one tensor of `size` bytes in a fresh segment."""
    size = round_up(size, ROUNDING)
    if size < SEGMENT_FROM:
        return size
    segment = round_up(size, SEGMENT_MULTIPLE)
    return segment if segment - size <= SMALL_SIZE else size
