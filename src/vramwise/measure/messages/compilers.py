"""XLA (JAX), TensorFlow and ONNX Runtime: what their pools print.

| who | wording |
|---|---|
| XLA | Out of memory while trying to allocate N bytes; Failed to allocate request for A (NB) on device ordinal D |
| XLA on TPU | Ran out of memory in memory space hbm. Used A of T hbm; Attempting to reserve A … There are F free |
| TensorFlow | OOM when allocating tensor with shape[…] and type T on …/device:GPU:0 by allocator GPU_0_bfc |
| ONNX Runtime | BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size N |

xla/service/buffer_assignment.cc prints a program's parts; xla/tsl/framework/bfc_allocator.cc and
allocator.cc DebugString the pool (Limit, InUse); docs/gpu_memory_allocation of JAX has the variables.
"""

from __future__ import annotations

import re
from math import prod
from typing import Final

from vramwise.measure.messages.message import (
    SIZE,
    OomMessage,
    Reading,
    Wording,
    last_whole_found,
    size_found,
    whole_found,
)
from vramwise.units import sized

_PARTS: Final = (
    (
        "parameters",
        "parameter allocation",
        ("weights and inputs over more devices (sharding), or in 16 bit", "more devices"),
    ),
    ("constants", "constant allocation", ("constants as arguments of the function", "none")),
    (
        "outputs",
        "maybe_live_out allocation",
        ("donate_argnums: outputs take the place of inputs", "the inputs are gone"),
    ),
    ("temporaries", "preallocated temp allocation", ("jax.checkpoint (remat), or a smaller batch", "30 % more time")),
)
_POOL: Final = "JAX takes 75 % of the card when it starts and gives out from that pool (XLA_PYTHON_CLIENT_MEM_FRACTION)"
_FRACTION: Final = ("XLA_PYTHON_CLIENT_MEM_FRACTION=0.95: a larger pool", "less room for other programs and libraries")
_SHARED: Final = ("XLA_PYTHON_CLIENT_PREALLOCATE=false, where several processes share the card", "fragmentation")
_SMALLER: Final = ("a smaller batch, jax.checkpoint (remat), or arrays cut over devices", "some speed")
_BYTES_OF_TYPE: Final = {
    "float": 4,
    "half": 2,
    "bfloat16": 2,
    "double": 8,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}


def _xla(reading: Reading) -> OomMessage:
    text = reading.after(3000)
    exact = whole_found(r"^Failed to allocate request for [^(]{1,30}\(([0-9]{1,18})B\)", text)
    tried = exact if exact is not None else size_found(r"(?:allocat(?:e|ing)|request for) " + SIZE, text[:120])
    limit = last_whole_found(r"\bLimit: {1,40}([0-9]{1,18})|memory_limit_: ([0-9]{1,18})", reading.before)
    used = last_whole_found(r"\bInUse: {1,40}([0-9]{1,18})", reading.before)
    parts = [(name, size_found(r"\b" + label + r": {1,40}" + SIZE, text)) for name, label, _ in _PARTS]
    held = tuple((name, size) for name, size in parts if size)
    whole = size_found(r"total allocation: {1,40}" + SIZE, text)
    device = re.search(r"device ordinal ([0-9]{1,4})", text[:200])
    cause, changes = f"the pool has no room for one more buffer; {_POOL}", (_FRACTION, _SHARED)
    if held and whole:
        name, size = max(held, key=lambda one: one[1])
        change = next(change for part, _, change in _PARTS if part == name)
        cause = f"the compiled program needs {sized(whole)}, most of it {name} ({sized(size)}); {_POOL}"
        changes = (change, _FRACTION)
    elif limit:
        in_use = f", {sized(used)} of it in use" if used is not None else ""
        cause = f"the pool is {sized(limit)}{in_use}; {_POOL}"
        changes = (_FRACTION, _SMALLER)
    return OomMessage(
        "XLA",
        f"GPU {device.group(1)}" if device else "",
        reading.position,
        tried,
        allocated=used,
        allowed=limit,
        text=text[:400],
        held=held,
        cause=cause,
        changes=changes,
    )


def _tpu(reading: Reading) -> OomMessage:
    text = reading.after(600)
    needs = size_found(r"Used " + SIZE, text) or size_found(r"(?:reserve|allocate) " + SIZE, text)
    total, free = size_found(r" of " + SIZE + r" (?:hbm|vmem)", text), size_found(r"There are " + SIZE + r" free", text)
    cause = "the compiled program needs more memory than the device has" if total else "the device's memory is in use"
    return OomMessage(
        "XLA",
        "TPU",
        reading.position,
        needs,
        total,
        free,
        text=text,
        cause=cause,
        changes=(_SMALLER, ("weights in 16 bit, or more devices in the mesh", "more devices")),
    )


def _pool(reading: Reading) -> OomMessage:
    text = reading.after(400)
    exact = whole_found(r"rounded to ([0-9]{1,18})", text)
    return OomMessage(
        "XLA",
        "",
        reading.position,
        exact or size_found(r"allocate " + SIZE, text),
        text=text,
        cause=f"the pool of XLA or TensorFlow has no piece of that size; {_POOL}",
        changes=(_FRACTION, _SMALLER),
        is_vague=True,
    )


def _tensorflow(reading: Reading) -> OomMessage:
    text = reading.after(500)
    shaped = re.search(r"shape\[([0-9, ]{1,200})\] and type ([a-z0-9]{1,12})", text)
    tried = None
    if shaped and shaped.group(2) in _BYTES_OF_TYPE:
        sizes = [int(one) for one in re.findall(r"[0-9]{1,12}", shaped.group(1))][:12]
        tried = prod(sizes) * _BYTES_OF_TYPE[shaped.group(2)]
    card = re.search(r"device:GPU:([0-9]{1,4})", text)
    on_host = "device:CPU" in text or "by allocator cpu" in text
    cause = (
        "the host's memory is in use, and one tensor needs more"
        if on_host
        else ("TensorFlow's pool, which takes the whole card unless told otherwise, has no piece for one more tensor")
    )
    leaner = ("TF_GPU_ALLOCATOR=cuda_malloc_async against fragmentation, or mixed precision", "none")
    return OomMessage(
        "TensorFlow",
        "CPU" if on_host else f"GPU {card.group(1)}" if card else "",
        reading.position,
        tried,
        text=text,
        memory="host" if on_host else "device",
        cause=cause,
        changes=(
            ("a smaller batch_size", "some speed"),
            ("fewer workers and a smaller shuffle buffer of tf.data", "some speed") if on_host else leaner,
        ),
    )


def _onnx(reading: Reading) -> OomMessage:
    text = reading.after(400)
    limited = "Available memory of" in text
    return OomMessage(
        "ONNX Runtime",
        "",
        reading.position,
        whole_found(r"(?:size|bytes of) ([0-9]{1,20})", text),
        free=whole_found(r"Available memory of ([0-9]{1,20})", text),
        text=text,
        memory=None,
        cause="the arena's own limit (gpu_mem_limit) is reached"
        if limited
        else "the arena found no memory for a "
        "buffer; on CUDA it doubles itself with each extension unless told otherwise (arena_extend_strategy)",
        changes=(
            ("a larger gpu_mem_limit", "less room for other programs")
            if limited
            else (
                "arena_extend_strategy kSameAsRequested and cudnn_conv_use_max_workspace 0 of the CUDA provider",
                "some speed",
            ),
            ("a smaller batch or smaller inputs", "some speed"),
        ),
    )


WORDINGS: Final = (
    Wording(
        "xla",
        ("Out of memory ", "Failed to allocate request for "),
        r"Out of memory (?:while trying to allocate|allocating) [0-9]"
        r"|Failed to allocate request for [0-9.]{1,20}[KMGT]?i?B",
        _xla,
    ),
    Wording(
        "tpu",
        ("Ran out of memory in memory space", "Attempting to "),
        r"Ran out of memory in memory space"
        r"|Attempting to (?:reserve|allocate) [0-9.]{1,20}[KMGT][^\n]{0,60}?not possible",
        _tpu,
    ),
    Wording(
        "tensorflow",
        ("OOM when allocating tensor", "failed to allocate memory [Op:"),
        r"OOM when allocating tensor|failed to allocate memory \[Op:",
        _tensorflow,
    ),
    Wording(
        "onnx",
        ("Failed to allocate memory for requested buffer", "Available memory of "),
        r"Failed to allocate memory for requested buffer of size [0-9]"
        r"|Available memory of [0-9]{1,20} is smaller than requested bytes of [0-9]",
        _onnx,
    ),
)
WEAK: Final = (
    Wording(
        "bfc",
        ("_bfc) ran out of memory",),
        r"\(\w{1,40}_bfc\) ran out of memory trying to allocate [0-9.]{1,20}[KMGT]?i?B \(rounded to",
        _pool,
    ),
)
"""The pool's warning, after which the caller may ask for less."""
