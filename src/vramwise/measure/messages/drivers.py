"""Failures below any allocator: CUDA itself, cuBLAS, NCCL, bitsandbytes, Vulkan and Metal.

| who | wording |
|---|---|
| CUDA | CUDA error: out of memory; CUDA_ERROR_OUT_OF_MEMORY; CUBLAS_STATUS_ALLOC_FAILED |
| ggml | CUDA error: out of memory … in function ggml_cuda_…; llama runner process has terminated (ollama) |
| NCCL | Cuda failure 2 'out of memory'; Failed to CUDA calloc async N bytes |
| bitsandbytes | Error out of memory at line N in file …/ops.cu |
| Vulkan | vk::Device::allocateMemory: ErrorOutOfDeviceMemory |
| Metal | kIOGPUCommandBufferCallbackErrorOutOfMemory |
"""

from __future__ import annotations

import re
from typing import Final

from vramwise.measure.messages.host import pinned
from vramwise.measure.messages.message import OomMessage, Reading, Wording, whole_found

_SMALLER: Final = ("a smaller batch or shorter texts", "some speed")
_LESS_FOR_OTHERS: Final = ("end the other programs on the card (nvidia-smi)", "none")
_PINS: Final = re.compile(r"pin memory thread|pin_memory(?:\.py|\()|HostAlloc|bytes on host: ")


def _cuda(reading: Reading) -> OomMessage:
    text, before = reading.after(400), reading.around(600, 0)
    if _PINS.search(reading.line) or _PINS.search(before):
        return pinned(reading)
    if "ggml" in text:
        return OomMessage("llama.cpp", "", reading.position, text=f"[pool] {text}")
    if "llama runner" in reading.line:
        return OomMessage("ollama", "", reading.position, text=reading.line)
    if text.startswith("CUBLAS"):
        return OomMessage(
            "cuBLAS",
            "",
            reading.position,
            text=text[:300],
            cause="cuBLAS had no room for its workspace: torch's allocator, or another program, holds all of the card",
            changes=(_SMALLER, ("CUBLAS_WORKSPACE_CONFIG=:16:8, or a first product before loading", "some speed")),
            is_vague=True,
        )
    return OomMessage(
        "CUDA",
        "",
        reading.position,
        whole_found(r"\(([0-9]{1,18}) bytes\) from device", reading.line),
        text=text[:300],
        cause="CUDA itself had no room, outside any allocator (context, library, kernel); the message does not "
        "say what holds the card",
        changes=(_LESS_FOR_OTHERS, _SMALLER),
        is_vague=True,
    )


def _nccl(reading: Reading) -> OomMessage:
    asked = whole_found(r"Failed to CUDA (?:m|c)alloc (?:async )?([0-9]{1,18}) bytes", reading.around(400, 600))
    return OomMessage(
        "NCCL",
        "",
        reading.position,
        asked,
        text=reading.after(300),
        cause="NCCL takes its buffers outside torch's allocator, and the card is full; or two ranks are on one card",
        changes=(
            ("room left free: a smaller batch, or a lower share of the card for the engine", "some speed"),
            ("smaller buffers: NCCL_BUFFSIZE=1048576 (4 MiB otherwise), NCCL_MAX_NCHANNELS=8", "slower communication"),
        ),
    )


def _bitsandbytes(reading: Reading) -> OomMessage:
    return OomMessage(
        "bitsandbytes",
        "",
        reading.position,
        text=reading.line[:300],
        cause="a CUDA call of bitsandbytes found the card full, outside torch's allocator",
        changes=(
            ("micro_batch_size halved, gradient_accumulation_steps doubled", "some speed"),
            ("a paged optimizer (paged_adamw_8bit), whose states move to the host", "slower steps"),
        ),
    )


def _vulkan(reading: Reading) -> OomMessage:
    text = reading.around(300, 300)
    if "ggml" in text:
        return OomMessage("llama.cpp", "", reading.position, text=text, is_vague=True)
    return OomMessage(
        "Vulkan",
        "",
        reading.position,
        text=text,
        cause="the device has no memory left, or one allocation is larger than it allows (maxMemoryAllocationSize)",
        changes=(("end the other programs on the card", "none"), _SMALLER),
    )


def _metal(reading: Reading) -> OomMessage:
    text = reading.around(300, 100)
    program = "llama.cpp" if "ggml" in text else "MLX" if "Command buffer execution failed" in text else ""
    if program:
        return OomMessage(program, "", reading.position, text=f"[unified] {text}", memory="unified")
    return OomMessage(
        "Metal",
        "",
        reading.position,
        text=text,
        memory="unified",
        cause="the GPU's work needs more than macOS lets it keep wired",
        changes=(_SMALLER, ("sudo sysctl iogpu.wired_limit_mb=N: a larger share", "less for macOS and other programs")),
    )


WORDINGS: Final = (
    Wording(
        "cuda",
        ("CUDA error", "CUBLAS_STATUS_ALLOC_FAILED", "CUDA_ERROR_OUT_OF_MEMORY"),
        r"CUDA error(?: 2 at [^\n]{1,80}?)?: out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY",
        _cuda,
    ),
    Wording(
        "nccl",
        ("Cuda failure ", "Failed to CUDA "),
        r"Cuda failure (?:2 )?'out of memory'|Failed to CUDA (?:m|c)alloc (?:async )?[0-9]",
        _nccl,
    ),
    Wording(
        "bitsandbytes",
        ("out of memory at line ",),
        r"Error(?: [0-9]{1,4}:)? out of memory at line [0-9]",
        _bitsandbytes,
    ),
    Wording(
        "vulkan",
        ("ErrorOutOfDeviceMemory", "VK_ERROR_OUT_OF_DEVICE_MEMORY"),
        r"ErrorOutOfDeviceMemory|VK_ERROR_OUT_OF_DEVICE_MEMORY",
        _vulkan,
    ),
    Wording(
        "metal",
        ("kIOGPUCommandBufferCallbackErrorOutOfMemory",),
        r"kIOGPUCommandBufferCallbackErrorOutOfMemory",
        _metal,
    ),
)
