"""torch's messages, by version and device.

| version | wording |
|---|---|
| 1.0 – 1.3 | Tried to allocate A (GPU N; T total capacity; X already allocated; F free; C cached): C is reserved − allocated |
| 1.4 – 2.0 | the same with [L allowed;] and R reserved in total by PyTorch |
| 2.1 and later | Tried to allocate A. GPU N has a total capac[i]ty of T of which F is free. [Process P has U memory in use.] Including non-PyTorch memory, this process has S memory in use. [L allowed;] Of the allocated memory X is allocated by PyTorch, [with G allocated in private pools,] and R is reserved by PyTorch but unallocated. |
| XPU, NPU | the same without processes |
| MPS | MPS backend out of memory (MPS allocated: X, other allocations: O, max allowed: L). Tried to allocate A |
| CPU | you tried to allocate N bytes |
| cudaMallocAsync | Allocation on device N would exceed allowed memory. (out of memory) Currently allocated : X Requested : A Device limit : T Free (according to CUDA): F PyTorch limit (…): L |

c10/cuda/CUDACachingAllocator.cpp, c10/cuda/CUDAMallocAsyncAllocator.cpp, c10/xpu/XPUCachingAllocator.cpp, c10/core/impl/alloc_cpu.cpp,
aten/src/ATen/mps/MPSAllocator.mm. Sizes are printed with two decimals and binary units.
"""  # noqa: E501

from __future__ import annotations

import re
from typing import Final

from vramwise.measure.messages.host import no_room_for_one
from vramwise.measure.messages.message import SIZE, OomMessage, Reading, Wording, bytes_of, size_found
from vramwise.units import format_bytes

_CARD: Final = re.compile(r"\b(?:GPU|NPU|XPU|MUSA|MLU) ([0-9]{1,4})\b")


def _device(reading: Reading) -> OomMessage:
    flat = reading.after(3000)
    who = flat.split(" ", 1)[0] if " out of memory" in flat[:30] else "CUDA"
    if who == "MPS":
        return _mps(flat, reading.position)
    card = _CARD.search(flat)
    tried = size_found(r"Tried to allocate " + SIZE, flat)
    total = size_found(r"total capaci?ty of " + SIZE, flat) or size_found(SIZE + r" total capacity", flat)
    free = size_found(SIZE + r" is free", flat)
    free = size_found(SIZE + r" free;", flat) if free is None else free
    allocated = size_found(SIZE + r" is allocated by PyTorch", flat)
    allocated = size_found(SIZE + r" already allocated", flat) if allocated is None else allocated
    reserved = _reserved(flat, allocated)
    others = tuple(
        (number, bytes_of(size, unit))
        for number, size, unit in re.findall(rf"Process ([0-9]{{1,12}}) has {SIZE} memory in use", flat)
    )
    process = size_found(r"this process has " + SIZE + r" memory in use", flat)
    if process is None:
        process, others = _seen_from_a_container(others, reserved, total)
    return OomMessage(
        "torch",
        f"{'GPU' if who == 'CUDA' else who} {card.group(1) if card else ''}".strip(),
        reading.position,
        tried,
        total,
        free,
        allocated,
        reserved,
        process,
        others,
        size_found(SIZE + r" allocated in private pools", flat),
        size_found(SIZE + r" allowed;", flat),
        flat[:900],
        is_vague=tried is None,
    )


def _reserved(flat: str, allocated: int | None) -> int | None:
    """What the allocator holds: until torch 1.3 and since 2.1 only its unused part is printed."""
    unused = size_found(SIZE + r" (?:is reserved by PyTorch but unallocated|cached\))", flat)
    if unused is not None and allocated is not None:
        return allocated + unused
    return size_found(SIZE + r" reserved in total by PyTorch", flat)


def _seen_from_a_container(
    others: tuple[tuple[str, int], ...], reserved: int | None, total: int | None
) -> tuple[int | None, tuple[tuple[str, int], ...]]:
    """This process among the others, where torch did not know its own number.

    In a container the driver's process numbers are not those that the process sees, and torch lists itself as another.
    A process that could not hold what it holds beside this one's tensors is this one.
    """
    for name, size in others:
        if reserved is not None and total is not None and size >= reserved and size + reserved > total:
            return size, tuple(other for other in others if other[0] != name)
    return None, others


def _mps(flat: str, position: int) -> OomMessage:
    """`other allocations` is what the process has of Metal outside torch's allocator (MPSGraph, other libraries)."""
    tried = size_found(r"Tried to allocate " + SIZE, flat)
    own, other = size_found(r"MPS allocated: " + SIZE, flat), size_found(r"other allocations: " + SIZE, flat)
    allowed = size_found(r"max allowed: " + SIZE, flat)
    held = [("MPS tensors", own), ("other Metal allocations", other)]
    cause = ""
    if None not in (own, other, allowed):
        used, limit = (own or 0) + (other or 0), allowed or 0
        cause = (
            f"this process holds {format_bytes(used, 'auto')} of the {format_bytes(limit, 'auto')} that it is allowed"
        )
        if used + (tried or 0) <= limit:
            cause = f"Metal refused although {cause}: the machine's memory is in use, or no piece of it is large enough"
        elif (other or 0) > (own or 0):
            cause += ", most of it outside torch's allocator (temporaries of MPSGraph, such as attention scores)"
    return OomMessage(
        "torch",
        "MPS",
        position,
        tried,
        allocated=own,
        allowed=allowed,
        text=flat[:400],
        memory="unified",
        held=tuple((name, size) for name, size in held if size is not None),
        cause=cause or "the limit of MPS is reached",
        changes=(
            ("a smaller batch, shorter texts or smaller images", "some speed"),
            ("PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0: no limit (1.7 of what macOS recommends)", "macOS may swap or stop"),
        ),
        is_vague=tried is None and own is None,
    )


def _malloc_async(reading: Reading) -> OomMessage:
    """CUDA's own pool (PYTORCH_ALLOC_CONF=backend:cudaMallocAsync), whose message tells of no reserved memory."""
    text = reading.after(900)
    total = size_found(r"Device limit *: " + SIZE, text)
    allowed = size_found(r"memory fraction\) *: " + SIZE, text)
    card = re.search(r"on device ([0-9]{1,4})", text)
    return OomMessage(
        "torch",
        f"GPU {card[1]}" if card else "GPU",
        reading.position,
        size_found(r"Requested *: " + SIZE, text),
        total,
        size_found(r"Free \(according to CUDA\) *: " + SIZE, text),
        size_found(r"Currently allocated *: " + SIZE, text),
        allowed=allowed if allowed and total and allowed < total else None,
        text=text,
    )


def _cpu(reading: Reading) -> OomMessage:
    flat = reading.after(300)
    tried = size_found(r"tried to allocate " + SIZE, flat)
    return OomMessage(
        "torch",
        "CPU",
        reading.position,
        tried=tried,
        text=flat,
        memory="host",
        cause=no_room_for_one("tensor"),
        changes=(
            (
                "less at once on the host: a smaller batch, weights in 16 bit, fewer copies of the checkpoint",
                "some speed",
            ),
            ("a larger limit of the container or job, or swap", "slower where it swaps"),
        ),
    )


WORDINGS: Final = (
    Wording(
        "torch",
        (" out of memory", "Tried to allocate "),
        r"(?:CUDA|HIP|XPU|MPS backend|NPU|MUSA|MLU) out of memory(?! occurred when)\W|Tried to allocate (?=[0-9])",
        _device,
    ),
    Wording(
        "torch_malloc_async",
        ("would exceed allowed memory",),
        r"Allocation on device (?:[0-9]{1,4} )?would exceed allowed memory",
        _malloc_async,
    ),
    Wording("torch_cpu", ("you tried to allocate ",), r"you tried to allocate [0-9]{1,20} bytes", _cpu),
)
