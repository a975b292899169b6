"""Memory of this process as the driver counts it (NVML), and what of it no tensor explains."""

from __future__ import annotations

import os
from typing import Any

from vramwise.measure.libraries import is_installed, library


def process_bytes(device: int) -> int | None:
    """Memory of this process on a GPU, or None where the driver does not tell (no NVML, or another process namespace).

    In a container the driver lists processes by the host's numbers; where exactly one runs on the card it is taken.
    """
    if not is_installed("pynvml"):
        return None
    nvml = library("pynvml")
    try:
        nvml.nvmlInit()
        handle = _handle(nvml, device)
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        return None
    own = [entry for entry in running if entry.pid == os.getpid()]
    found = own or (running if len(running) == 1 else [])
    used = found[0].usedGpuMemory if found else None
    return int(used) if used is not None else None


def driver_version() -> str | None:
    """The NVIDIA driver's version, where NVML tells it."""
    if not is_installed("pynvml"):
        return None
    nvml = library("pynvml")
    try:
        nvml.nvmlInit()
        version = nvml.nvmlSystemGetDriverVersion()
    except nvml.NVMLError:
        return None
    return version.decode() if isinstance(version, bytes) else str(version)


def _handle(nvml: Any, device: int) -> Any:
    """NVML numbers cards by bus, torch by CUDA_VISIBLE_DEVICES: the UUID is the same in both."""
    properties = library("torch").cuda.get_device_properties(device)
    uuid = str(getattr(properties, "uuid", ""))
    if uuid:
        name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        try:
            return nvml.nvmlDeviceGetHandleByUUID(name)
        except nvml.NVMLError:
            pass
    return nvml.nvmlDeviceGetHandleByIndex(device)


def context_bytes(device: int) -> int | None:
    """The CUDA context by experiment: process memory with a tensor of one element, less what torch reserved for it."""
    torch = library("torch")
    tensor = torch.ones(1, device=f"cuda:{device}")
    torch.cuda.synchronize(device)
    used = process_bytes(device)
    reserved = int(torch.cuda.memory_reserved(device))
    del tensor
    return None if used is None else max(0, used - reserved)
