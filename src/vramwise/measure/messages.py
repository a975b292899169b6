"""Out-of-memory messages: what each program and version prints, read into the same few numbers.

| who | wording |
|---|---|
| torch up to 2.0 | Tried to allocate A (GPU N; T total capacity; [L allowed;] X already allocated; F free; R reserved in total by PyTorch) |
| torch before 1.5 | the same with "R cached" |
| torch 2.1 and later | Tried to allocate A. GPU N has a total capac[i]ty of T of which F is free. [Process P has U memory in use.] Including non-PyTorch memory, this process has S memory in use. [L allowed;] Of the allocated memory X is allocated by PyTorch, [with G allocated in private pools,] and R is reserved by PyTorch but unallocated. |
| torch on XPU, MPS, CPU | the same without processes; "MPS allocated: …"; "you tried to allocate N bytes" |
| llama.cpp | allocating A MiB on device N: cudaMalloc failed; failed to allocate CUDA0 buffer of size N |
| vLLM | S GiB KV cache is needed, which is larger than the available KV cache memory (F GiB); Free memory on device (F/T GiB) on startup is less than desired …; No available memory for the cache blocks |
| NumPy, XLA | Unable to allocate A for an array; Out of memory (while trying to allocate\\|allocating) N bytes |

torch: c10/cuda/CUDACachingAllocator.cpp, c10/xpu/XPUCachingAllocator.cpp, c10/core/impl/alloc_cpu.cpp,
aten/src/ATen/mps/MPSAllocator.mm. Sizes are printed with two decimals and binary units.
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from vramwise.errors import UsageError
from vramwise.units import parse_bytes

LONGEST_TEXT: Final = 50_000_000
MOST_MESSAGES: Final = 4000
"""Each rank prints its own, chained exceptions print them twice; a log of more is a loop that goes on and on."""
_REACH: Final = 3000  # characters of one message, wrapped lines and log prefixes included


@dataclass(frozen=True, slots=True)
class OomMessage:
    """What one message says; None where it does not say it. All sizes are bytes."""

    program: str
    device: str
    position: int
    tried: int | None = None
    total: int | None = None
    free: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    process: int | None = None
    others: tuple[tuple[str, int], ...] = ()
    private_pools: int | None = None
    allowed: int | None = None
    text: str = ""

    @property
    def unallocated(self) -> int | None:
        """Reserved − allocated: what the allocator holds and no tensor uses."""
        if self.reserved is None or self.allocated is None:
            return None
        return max(0, self.reserved - self.allocated)

    @property
    def shortfall(self) -> int | None:
        """What was asked for beyond what was free: the least that must be freed."""
        if self.tried is None:
            return None
        return max(0, self.tried - (self.free or 0))


_SIZE: Final = r"(?<![\d.])(\d[\d.]{0,20}) ?(bytes|B|[KMGT]i?B)\b"
_ASKED: Final = re.compile(
    r"(?P<who>CUDA|HIP|XPU|MPS backend|NPU|MUSA|MLU) out of memory\W"
    r"|Tried to allocate (?=\d)"
    r"|(?P<cpu>you tried to allocate \d+ bytes)"
    r"|(?P<llama>(?:cudaMalloc|hipMalloc) failed: out of memory|failed to allocate \S+ buffer of size \d+)"
    r"|(?P<vllm>KV cache is needed, which is larger than|No available memory for the cache blocks"
    r"|maximum number of tokens that can be stored in KV cache|on startup is less than desired)"
    r"|(?P<numpy>Unable to allocate [\d.]+ [KMGT]iB for an array)"
    r"|(?P<xla>Out of memory (?:while trying to allocate|allocating) \d+ bytes)"
    r"|(?P<bare>CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY)"
)


def messages_in(text: str) -> list[OomMessage]:
    """Every out-of-memory message of a log, in order, at most the first MOST_MESSAGES.

    Raises UsageError for a text longer than 50 MB.
    """
    if len(text) > LONGEST_TEXT:
        raise UsageError("the log is longer than 50 MB: give the end of it, with the traceback")
    found: list[OomMessage] = []
    starts = list(islice(_ASKED.finditer(text), MOST_MESSAGES))
    covered = -1
    for i, match in enumerate(starts):
        if match.start() < covered:
            continue
        end = min(match.start() + _REACH, len(text))
        following = (starts[j].start() for j in range(i + 1, len(starts)) if _starts_another(starts[j], match))
        end = min(end, next(following, end))
        message = _read(match, text, end)
        covered = end if message.program == "torch" else match.end()
        found.append(message)
    return _without_repeats(found)


def _starts_another(later: re.Match[str], first: re.Match[str]) -> bool:
    """A headline and its "Tried to allocate" are one message; two headlines are two."""
    is_pair = (
        first.group("who") is not None and later.group(0).startswith("Tried") and later.start() - first.end() < 200
    )
    return not is_pair


def _read(match: re.Match[str], text: str, end: int) -> OomMessage:
    part = text[match.start() : end]
    flat = _flat(part)
    where = match.start()
    if match.group("cpu"):
        return OomMessage("torch", "CPU", where, tried=_found(r"tried to allocate " + _SIZE, flat), text=flat[:300])
    if match.group("llama"):
        return _llama_cpp(match, text, where)
    if match.group("vllm"):
        return _vllm(match, text, where)
    if match.group("numpy"):
        return OomMessage("NumPy", "CPU", where, tried=_found(r"Unable to allocate " + _SIZE, flat), text=flat[:200])
    if match.group("xla"):
        return OomMessage("XLA", "", where, tried=_found(r"allocat(?:e|ing) " + _SIZE, flat), text=flat[:200])
    if match.group("bare"):
        return OomMessage("CUDA", "", where, text=match.group(0))
    return _torch(match, flat, where)


def _torch(match: re.Match[str], flat: str, where: int) -> OomMessage:
    who = match.group("who") or "CUDA"
    if who == "MPS backend":
        return OomMessage(
            "torch", "MPS", where, tried=_found(r"Tried to allocate " + _SIZE, flat),
            allocated=_found(r"MPS allocated: " + _SIZE, flat), allowed=_found(r"max allowed: " + _SIZE, flat),
            text=flat[:400],
        )  # fmt: skip
    gpu = re.search(r"GPU (\d+)", flat)
    tried = _found(r"Tried to allocate " + _SIZE, flat)
    total = _found(r"total capaci?ty of " + _SIZE, flat) or _found(_SIZE + r" total capacity", flat)
    free = _found(_SIZE + r" is free", flat)
    free = _found(_SIZE + r" free;", flat) if free is None else free
    allocated = _found(_SIZE + r" is allocated by PyTorch", flat)
    allocated = _found(_SIZE + r" already allocated", flat) if allocated is None else allocated
    unallocated = _found(_SIZE + r" is reserved by PyTorch but unallocated", flat)
    if unallocated is not None and allocated is not None:
        reserved: int | None = allocated + unallocated
    else:
        reserved = _found(_SIZE + r" (?:reserved in total by PyTorch|cached\))", flat)
    others = tuple(
        (number, _bytes(size, unit))
        for number, size, unit in re.findall(rf"Process (\d+) has {_SIZE} memory in use", flat)
    )
    process = _found(r"this process has " + _SIZE + r" memory in use", flat)
    if process is None:
        process, others = _seen_from_a_container(others, reserved, total)
    return OomMessage(
        "torch", f"{'GPU' if who == 'CUDA' else who} {gpu.group(1) if gpu else ''}".strip(), where, tried, total, free,
        allocated, reserved, process, others,
        _found(_SIZE + r" allocated in private pools", flat), _found(_SIZE + r" allowed;", flat), flat[:900],
    )  # fmt: skip


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


def _llama_cpp(match: re.Match[str], text: str, where: int) -> OomMessage:
    line_start = text.rfind("\n", max(0, where - _REACH), where) + 1 or max(0, where - _REACH)
    line = _flat(text[line_start : match.end() + 200].splitlines()[0])
    sized = re.search(r"buffer of size (\d+)", line)
    tried = int(sized.group(1)) if sized else _found(r"allocating " + _SIZE, line)
    device = re.search(r"on device (\d+)", line) or re.search(r"CUDA(\d+) buffer", line)
    return OomMessage("llama.cpp", f"GPU {device.group(1)}" if device else "", where, tried, text=line)


def _vllm(match: re.Match[str], text: str, where: int) -> OomMessage:
    flat = _flat(text[max(0, where - 400) : where + 600])
    device = re.search(r"Free memory on device (?:cuda:(\d+) )?\(([\d.]+)/([\d.]+) GiB\)", flat)
    free = _found(r"available KV cache memory \(" + _SIZE, flat)
    return OomMessage(
        "vLLM", f"GPU {device.group(1) or 0}" if device else "", where,
        tried=_found(_SIZE + r" KV cache is needed", flat),
        total=_bytes(device.group(3), "GiB") if device else None,
        free=_bytes(device.group(2), "GiB") if device else free, text=flat,
    )  # fmt: skip


def _flat(text: str) -> str:
    """One line: wrapped lines joined, rank prefixes of launchers and quote marks at line starts dropped."""
    lines = (re.sub(r"^(?:\s*\[[\w:. -]{1,40}\]:?)?[\s>|│#]*", "", line) for line in text.splitlines())
    return " ".join(" ".join(lines).split())


def _found(pattern: str, flat: str) -> int | None:
    match = re.search(pattern, flat)
    return _bytes(match.group(1), match.group(2)) if match else None


def _bytes(size: str, unit: str) -> int:
    binary: Callable[[str], str] = lambda u: u if u in ("bytes", "B") or "i" in u else f"{u[0]}iB"  # noqa: E731
    return parse_bytes(f"{size.rstrip('.')} {binary(unit)}")


def _without_repeats(messages: list[OomMessage]) -> list[OomMessage]:
    """Python prints a chained exception twice, and launchers print each rank's again: equal ones count once."""
    kept: dict[tuple[object, ...], OomMessage] = {}
    for message in messages:
        key = (message.program, message.device, message.tried, message.free, message.allocated, message.process)
        kept.setdefault(key, message)
    found = list(kept.values())
    full = [m for m in found if m.tried is not None or m.program not in ("CUDA", "torch")]
    return full or found
