"""Prometheus text of GPU exporters: NVIDIA's DCGM exporter, nvidia_gpu_exporter, AMD's device metrics exporter.

DCGM's profiling fields are the only live view of the tensor pipes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vramwise.errors import SourceError, clipped
from vramwise.records import record

FIELDS = {
    "DCGM_FI_DEV_GPU_TEMP": ("temperature", "°C", 1.0),
    "DCGM_FI_DEV_XID_ERRORS": ("last XID error", "", 1.0),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("PCIe sent", "B/s", 1.0),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("PCIe received", "B/s", 1.0),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": ("NVLink sent", "B/s", 1.0),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": ("NVLink received", "B/s", 1.0),
    "nvidia_smi_utilization_gpu_ratio": ("kernel resident", "%", 100.0),
    "nvidia_smi_utilization_memory_ratio": ("memory busy", "%", 100.0),
    "nvidia_smi_memory_used_bytes": ("memory used", "B", 1.0),
    "nvidia_smi_memory_total_bytes": ("memory total", "B", 1.0),
    "nvidia_smi_power_draw_watts": ("power", "W", 1.0),
    "nvidia_smi_temperature_gpu": ("temperature", "°C", 1.0),
    "gpu_gfx_activity": ("kernel resident", "%", 1.0),
    "gpu_umc_activity": ("memory busy", "%", 1.0),
    "gpu_used_vram": ("memory used", "MiB", 1.0),
    "gpu_total_vram": ("memory total", "MiB", 1.0),
    "gpu_package_power": ("power", "W", 1.0),
    "gpu_junction_temperature": ("temperature", "°C", 1.0),
    "gpu_prof_tensor_active_percent": ("tensor pipe active", "%", 1.0),
    "DCGM_FI_DEV_GPU_UTIL": ("kernel resident", "%", 1.0),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("memory busy", "%", 1.0),
    "DCGM_FI_DEV_FB_USED": ("memory used", "MiB", 1.0),
    "DCGM_FI_DEV_FB_FREE": ("memory free", "MiB", 1.0),
    "DCGM_FI_DEV_POWER_USAGE": ("power", "W", 1.0),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("graphics or compute engine active", "%", 100.0),
    "DCGM_FI_PROF_SM_ACTIVE": ("SMs with a warp", "%", 100.0),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("warps of the most", "%", 100.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor pipe active", "%", 100.0),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": ("fp64 pipe active", "%", 100.0),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": ("fp32 pipe active", "%", 100.0),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": ("fp16 pipe active", "%", 100.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("memory interface active", "%", 100.0),
}
"""Fields that are read, in plain words, with unit and scale (DCGM's profiling fields are fractions)."""
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?$")
_LABEL = re.compile(r'(?<!\w)(\w++)="((?:[^"\\]|\\.)*+)"')


@record
class Sample:
    """One value of one GPU, in `unit`."""

    gpu: str
    name: str
    field: str
    value: float
    unit: str


def read_exporter(text: str) -> list[Sample]:
    """The GPU counters in a Prometheus exposition. Raises SourceError where none of FIELDS is in it."""
    found = list(_samples(text))
    if not found:
        raise SourceError('no GPU counters here: expected lines such as DCGM_FI_DEV_GPU_UTIL{gpu="0"} 97')
    return found


def _samples(text: str) -> Iterator[Sample]:
    for line in text.splitlines():
        match = None if line.startswith("#") else _SAMPLE.match(" ".join(line.split()))
        field = match.group(1).removeprefix("amd_") if match else ""
        if not match or field not in FIELDS:
            continue
        words, unit, scale = FIELDS[field]
        labels = dict(_LABEL.findall(match.group(2) or ""))
        try:
            value = float(match.group(3)) * scale
        except ValueError:
            continue
        if value == value and abs(value) < float("inf"):
            gpu = next((labels[key] for key in ("gpu", "gpu_id", "uuid") if key in labels), "0")
            yield Sample(clipped(gpu), labels.get("modelName") or labels.get("card_series") or "", words, value, unit)
