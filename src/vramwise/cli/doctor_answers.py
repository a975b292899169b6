"""The answers of `vramwise doctor` as JSON-able tables; the screen is in `screens/doctor.py`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from vramwise.errors import SourceError, UsageError
from vramwise.hardware import find_installed_gpu
from vramwise.hardware.machine import nvlink_status, peer_access
from vramwise.hardware.machine.facts import DriverFacts, GpuFacts
from vramwise.hardware.machine.host import Host, this_host
from vramwise.hardware.machine.known_conflicts import driver_conflict, gpu_conflicts, package_conflicts
from vramwise.hardware.machine.nccl_tests import NcclTest
from vramwise.hardware.machine.network import interfaces
from vramwise.hardware.machine.nvlink_status import NvlinkStatus, read_nvlink_status
from vramwise.hardware.machine.nvml import TIMEOUT_S, nvidia_smi_text, silent_tools, this_machine
from vramwise.hardware.machine.pasted import Pasted
from vramwise.hardware.machine.peer_access import PeerAccess, read_peer_access
from vramwise.hardware.machine.reports import Report
from vramwise.hardware.machine.topology import Topology, explained, read_topology
from vramwise.hardware.machine.versions import (
    Software,
    conflicts,
    installed_packages,
    torch_build_cuda,
    unmet_requirements,
)
from vramwise.units import GB

NO_DRIVER = (
    "no NVIDIA driver answers here (neither NVML nor nvidia-smi), nor amd-smi or rocm-smi: GPU facts are missing; "
    "vramwise doctor FILE reads what another machine's tools printed"
)
NO_NVML = "NVML is not installed for Python: nvidia-smi -q was read instead (pip install vramwise[gpu] adds live use)"
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*GB\b")


def machine_answer() -> dict[str, Any]:
    """This machine."""
    driver = this_machine()
    notes = [] if driver is not None else [NO_DRIVER]
    if driver is not None:
        notes += [*driver.notes, *([NO_NVML] if driver.source != "NVML" else [])]
    matrix, access, links = (
        _printed(reader, notes, *arguments)
        for reader, arguments in (
            (read_topology, ("topo", "-m")),
            (read_peer_access, ("topo", "-p2p", "r")),
            (read_nvlink_status, ("nvlink", "-s")),
        )
    )
    notes += [f"{tool} did not answer within {TIMEOUT_S} s: a GPU may be lost (dmesg says)" for tool in silent_tools()]
    host, packages = this_host(), installed_packages()
    software = Software(
        torch=packages.get("torch"),
        torch_cuda=torch_build_cuda(),
        driver=driver.driver if driver else None,
        driver_cuda=driver.cuda if driver else None,
        shared_memory_gb=None if host.shared_memory_bytes is None else host.shared_memory_bytes / GB,
    )
    return {
        "schema": 1,
        "of": "this machine",
        **_driver(driver),
        **_topology(matrix),
        **_links(access, links or ()),
        "nccl": None,
        "host": _host(host),
        "network": [asdict(each) for each in interfaces()],
        "packages": packages,
        "versions": _versions(replace(software, shared_memory_gb=None)),  # `host` has it
        "ops": {},
        "conflicts": [*_conflicts(software, packages, driver), *unmet_requirements(packages)],
        "counters": [],
        "notes": notes,
    }


def _printed(reader: Callable[[str], Any], notes: list[str], *arguments: str) -> Any:
    """What a reader makes of `nvidia-smi ARGUMENTS` here; None, with a note where it printed something else."""
    text = nvidia_smi_text(*arguments)
    try:
        return None if text is None else reader(text)
    except SourceError as error:
        notes.append(str(error))
        return None


def pasted_answer(pasted: Pasted, name: str) -> dict[str, object]:
    """A machine by what its tools printed."""
    packages: dict[str, str] = {}
    ops: dict[str, object] = {}
    for report in pasted.reports:
        packages |= report.packages
        ops |= {op: {"installed": installed, "compatible": fine} for op, (installed, fine) in report.ops.items()}
    software = _software(pasted)
    driver = pasted.driver or _driver_of(pasted.reports)
    return {
        "schema": 1,
        "of": f"{name} ({', '.join(pasted.kinds)})",
        **_driver(_with_links(driver, pasted.nvlink)),
        **_topology(pasted.topology),
        **_links(pasted.peer_access, pasted.nvlink),
        "nccl": None if pasted.nccl is None else _nccl(pasted.nccl),
        "host": None,
        "network": [],
        "packages": packages,
        "versions": _versions(software),
        "ops": ops,
        "conflicts": _conflicts(software, packages, driver),
        "counters": [asdict(sample) for sample in pasted.samples],
        "notes": [
            *pasted.notes,
            *(driver.notes if driver else ()),
            *(warning for report in pasted.reports for warning in report.warnings),
        ],
    }


def gpu_answer(gpu: GpuFacts) -> dict[str, Any]:
    """One GPU with what the catalog knows of it."""
    facts = asdict(gpu)
    try:
        match = find_installed_gpu(gpu.name, gpu.total_bytes)
    except UsageError as problem:
        return {**facts, "catalog": None, "catalog_note": str(problem)}
    card = match.gpu
    support = card.support
    return {
        **facts,
        "catalog": {
            "id": card.id,
            "compute_capability": card.compute_capability,
            "bf16": support.bf16,
            "fp8": support.fp8_gemm,
            "flash_attention_1": support.flash_attention_1,
            "flash_attention_2": support.flash_attention_2,
            "flash_attention_3": support.flash_attention_3,
            "bf16_tflops": card.dense_tflops("bf16"),
            "bandwidth_gb_s": card.bandwidth_gb_s,
        },
        "catalog_note": match.note,
    }


def _driver(driver: DriverFacts | None) -> dict[str, Any]:
    if driver is None:
        return {"source": None, "driver": None, "cuda": None, "gpus": []}
    gpus = [gpu_answer(gpu) for gpu in driver.gpus]
    return {"source": driver.source, "driver": driver.driver, "cuda": driver.cuda, "gpus": gpus}


def _driver_of(reports: tuple[Report, ...]) -> DriverFacts | None:
    """The GPUs that collect_env lists."""
    report = next((each for each in reports if each.gpus or each.driver), None)
    if report is None:
        return None
    gpus = tuple(GpuFacts(index, name) for index, name in enumerate(report.gpus))
    return DriverFacts(report.kind, report.driver, None, gpus)


def _topology(topology: Topology | None) -> dict[str, Any]:
    if topology is None:
        return {"topology": None}
    matrix = {"devices": list(topology.devices), "matrix": [list(row) for row in topology.matrix]}
    return {"topology": {**matrix, "pairs": topology.pairs(), "explained": explained(topology)}}


def _with_links(driver: DriverFacts | None, links: Sequence[NvlinkStatus]) -> DriverFacts | None:
    """The GPUs with their NVLinks, which `nvidia-smi` states in a report of its own."""
    up = {each.index: each.up for each in links}
    if driver is None or not up or not driver.source.startswith("nvidia-smi"):
        return driver
    return replace(driver, gpus=tuple(replace(gpu, nvlinks_up=up.get(gpu.index)) for gpu in driver.gpus))


def _links(access: PeerAccess | None, links: Sequence[NvlinkStatus]) -> dict[str, Any]:
    """Peer access and NVLinks, beside the topology."""
    said = [] if not links else nvlink_status.explained(list(links))
    return {
        "peer_access": None if access is None else {**asdict(access), "explained": peer_access.explained(access)},
        "nvlinks": [{**asdict(each), "up": each.up, "gb_s": round(each.gb_s, 3)} for each in links],
        "nvlinks_explained": said,
    }


def _conflicts(software: Software, packages: Mapping[str, str], driver: DriverFacts | None) -> list[str]:
    """Everything that is known not to go together here."""
    gpus = []
    for gpu in driver.gpus if driver else ():
        card = gpu_answer(gpu)["catalog"]
        capability = gpu.compute_capability or (card["compute_capability"] if card else None)
        gpus += [] if capability is None else [(gpu.name, capability)]
    by_version = [] if software.driver_cuda else driver_conflict(software.torch_cuda, software.driver)
    return [
        *conflicts(software),
        *by_version,
        *gpu_conflicts(gpus, software.torch_cuda, packages),
        *package_conflicts(packages),
    ]


def _nccl(test: NcclTest) -> dict[str, object]:
    return {
        "collective": test.collective,
        "ranks": test.ranks,
        "avg_busbw": test.avg_busbw,
        "best": asdict(test.best),
        "rows": [asdict(row) for row in test.rows],
        "notes": list(test.notes),
    }


def _software(pasted: Pasted) -> Software:
    first: dict[str, Any] = {}
    for report in pasted.reports:
        shared = _SIZE.match(report.facts.get("shared memory (/dev/shm) size", ""))
        said = {
            "torch": report.torch_version,
            "torch_cuda": report.torch_cuda,
            "nvcc": report.nvcc,
            "driver": report.driver,
            "shared_memory_gb": float(shared.group(1)) if shared else None,
        }
        first |= {key: value for key, value in said.items() if value is not None and key not in first}
    if pasted.driver is not None:
        first |= {"driver": pasted.driver.driver, "driver_cuda": pasted.driver.cuda}
    return Software(**first)


def _versions(software: Software) -> dict[str, str | None]:
    shared = software.shared_memory_gb
    return {
        "CUDA of torch": software.torch_cuda,
        "nvcc": software.nvcc,
        "driver's newest CUDA": software.driver_cuda,
        "/dev/shm": None if shared is None else f"{shared:.2f} GB",
    }


def _host(host: Host) -> dict[str, Any]:
    return asdict(host)
