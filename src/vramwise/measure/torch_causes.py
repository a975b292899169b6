"""Why torch had no room, from the numbers of its message: the first that holds of

| sign | cause |
|---|---|
| what was asked for is larger than the card | one tensor is too large |
| reserved + asked is beyond a limit below the card's size | the limit (`set_per_process_memory_fraction`) |
| less was asked for than was free | the driver refused: another process at that moment, or a limit of another kind |
| the optimizer makes its states (its first step) | optimizer states: one tensor of many to come |
| two or more other processes hold about as much as this one | ranks that share a card |
| reserved − allocated is at least what was asked for | fragmentation |
| memory of other processes is at least what was lacking | another process |
| reserved − allocated together with what is free is | fragmentation: expandable segments join the two |
| none of these | the kind of memory that the failing line asks for |
"""

from __future__ import annotations

import re
from typing import Final

from vramwise.measure.causes import UNKNOWN, Kind
from vramwise.measure.changes import Change
from vramwise.measure.messages import OomMessage
from vramwise.units import GIB, MIB, sized

_LARGEST_CONTEXT: Final = 2389 * MIB
"""hardware/calibration.csv context_per_sm_eager, highest row (18.1 MiB), on 132 multiprocessors: what a process takes
of the card beside torch's allocator at most. What is held beyond it is held by others."""
_RANKS: Final = 3  # two of a size may be chance
_ROUNDING: Final = GIB // 100  # sizes are printed with two decimals
_REFUSED: Final = (
    Change("see what else takes the card when it starts (nvidia-smi -l 1, rocm-smi), and end it", None, "none"),
    Change(
        "the same command outside WSL and containers, with ulimit -v unlimited: what helps names the limit",
        None,
        "none",
    ),
)
_VENDORS: Final = frozenset({"HIP", "NPU", "MUSA", "MLU", "XPU"})


def torch_cause(message: OomMessage, kind: Kind, *, first_step: bool) -> tuple[str, list[Change]]:
    """The cause in a sentence, and the changes that it alone suggests."""
    tried, free, spare = message.tried, message.free, message.unallocated
    if tried is not None and message.total is not None and tried > message.total:
        return f"one tensor is larger than the whole card{_while(kind)}", []
    if (limit := _limit_reached(message)) is not None:
        change = Change("a larger limit (set_per_process_memory_fraction)", (message.total or limit) - limit, "none")
        return f"the process may take only {sized(limit)} of the card{_while(kind)}", [change]
    if tried is not None and free is not None and tried < free:
        return (
            f"the driver refused {sized(tried)} although {sized(free)} was free when the message was written: another "
            "process held it at that moment, or a limit other than the card's size was reached (MIG or vGPU slice, "
            "WSL, a container's host memory, ulimit -v, IPC handles, address space)",
            list(_REFUSED),
        )
    if first_step:
        return f"the optimizer makes its states in its first step: one tensor of many to come ({kind.name})", []
    if (shared := _shared_card(message)) is not None:
        return shared
    if tried is not None and spare is not None and spare >= tried:
        return _fragmentation(message, spare, f"in pieces smaller than {sized(tried)}", kind)
    if (other := _other_processes(message)) is not None:
        return other
    if tried is not None and spare and spare + (free or 0) >= tried:
        apart = f"apart from the {sized(free or 0)} that is free; {sized(tried)} fits into both together"
        return _fragmentation(message, spare, apart, kind)
    if kind is UNKNOWN:
        return "the memory is in use; the report does not say by what (give the whole traceback or a snapshot)", []
    return f"the memory is in use, and {kind.doing} needs more ({kind.name})", []


def expandable(message: OomMessage | None = None) -> str:
    """The allocator's setting against fragmentation, by the variable that this version and device read."""
    text = message.text if message is not None else ""
    device = message.device.split(" ")[0] if message is not None else ""
    vendor = device if device in _VENDORS else ""
    if vendor == "HIP":
        is_old = re.search(r"PYTORCH_(?:HIP|CUDA)_ALLOC_CONF|max_split_size_mb", text)
        if is_old:
            return "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True (max_split_size_mb:512 where ROCm does not know it)"
        return "PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_HIP_ALLOC_CONF before torch 2.9)"
    if vendor == "XPU":  # c10/xpu/XPUCachingAllocator.cpp has ExpandableSegment; CUDA's variable is not read for it
        return "PYTORCH_ALLOC_CONF=expandable_segments:True (where torch knows it for XPU)"
    if vendor:
        return f"PYTORCH_{vendor}_ALLOC_CONF=expandable_segments:True"
    if "PYTORCH_CUDA_ALLOC_CONF" in text:
        return "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (max_split_size_mb:512 before torch 2.1)"
    return "PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before torch 2.9)"


def _limit_reached(message: OomMessage) -> int | None:
    """The limit, where reserved + asked is beyond it, as CUDACachingAllocator.cpp alloc_block compares them."""
    limit, total = message.allowed, message.total
    if limit is None or total is None or limit >= total:
        return None
    known = message.reserved is not None and message.tried is not None
    return limit if not known or (message.reserved or 0) + (message.tried or 0) + _ROUNDING >= limit else None


def _shared_card(message: OomMessage) -> tuple[str, list[Change]] | None:
    """Ranks of one job on one card, where torch named them: processes of about this one's size, its own among them.

    Their sizes have a CUDA context each, which torch does not count as reserved.
    """
    own = message.process or message.reserved
    if not own:
        return None
    like = [size for _, size in message.others if abs(size - own) <= own // 10 + _LARGEST_CONTEXT]
    count, held = len(like) + (message.process is not None), sum(like) + (message.process or 0)
    if count < _RANKS or own < _LARGEST_CONTEXT or held < (message.total or 0) // 2:
        return None
    cause = f"{count} processes of about the same size hold {sized(held)} of this one card: ranks of one job share it"
    what = "a card for each rank (CUDA_VISIBLE_DEVICES, torch.cuda.set_device(local_rank)), or fewer processes"
    return cause, [Change(what, held - held // count, "none")]


def _other_processes(message: OomMessage) -> tuple[str, list[Change]] | None:
    """Others that hold at least what was lacking, named where torch named them."""
    short = message.shortfall
    if not short:
        return None
    if message.others:
        who = ", ".join(f"process {name}" for name, _ in message.others)
        held = sum(size for _, size in message.others)
    else:
        who, held = "other processes", message.outside or 0
    is_own_too = not message.others and message.process is None
    if held < short + (_LARGEST_CONTEXT if is_own_too else 0):
        return None
    verb = "holds" if len(message.others) == 1 else "hold"
    beside = " (this process's own CUDA context among it)" if is_own_too else ""
    change = Change(f"end {who}, or take another card", held, "none")
    return f"{who} {verb} {sized(held)} of the card{beside}", [change]


def _fragmentation(message: OomMessage, spare: int, apart: str, kind: Kind) -> tuple[str, list[Change]]:
    cause = f"fragmentation: {sized(spare)} is reserved and unused, but {apart}{_while(kind)}"
    return cause, [Change(expandable(message), spare, "none")]


def _while(kind: Kind) -> str:
    return f"; it failed in {kind.doing}" if kind.doing else ""
