"""One GPU of a machine as its driver reports it, whoever asked: NVML, `nvidia-smi` or `nvidia-smi -q`."""

from __future__ import annotations

from dataclasses import field

from vramwise.records import record


@record
class Process:
    """One process on a GPU; its memory is None where the driver does not tell (containers, WSL)."""

    pid: int
    name: str
    used_bytes: int | None


@record
class GpuFacts:
    """What the driver says of one GPU; None where it says nothing.

    `utilization_pct` is NVML's: the share of the sample period in which at least one kernel ran. It is no share of
    peak: one block that spins reads 100 %.
    """

    index: int
    name: str
    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    reserved_bytes: int | None = None
    utilization_pct: int | None = None
    memory_utilization_pct: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    ecc: str | None = None
    mig: str | None = None
    compute_capability: str | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    nvlinks_up: int | None = None
    bus_id: str | None = None
    processes: tuple[Process, ...] = ()
    uuid: str | None = None
    slices: tuple[GpuFacts, ...] = ()
    """Its MIG devices, each with the card's index and a name such as `NVIDIA H100 80GB HBM3 MIG 1g.10gb`."""


@record
class DriverFacts:
    """A machine's GPUs and driver; `cuda` is the newest CUDA version that the driver runs."""

    source: str
    driver: str | None = None
    cuda: str | None = None
    gpus: tuple[GpuFacts, ...] = ()
    notes: tuple[str, ...] = field(default=())
