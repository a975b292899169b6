"""`nvidia-smi`'s table and `nvidia-smi -q`'s report as text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vramwise.errors import SourceError
from vramwise.hardware.machine.facts import DriverFacts, GpuFacts, Process
from vramwise.units import MIB

_VERSIONS = re.compile(r"Driver Version:\s*([\d.]+).*?CUDA (?:\w+ )?Version:\s*([\d.]+|N/A)")
_FIRST = re.compile(
    r"\|\s+(\d+)\s+(\S.*?)\s+(?:On|Off|N/A)\s*\|\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)\s+\S+\s*\|\s*(\S+)\s*\|"
)
_SECOND = re.compile(
    r"\|\s*\S+\s+(\d+|N/A)C?\s+\S+\s+(\d+|N/A)W?\s*/\s*(\d+|N/A)W?\s*\|\s*(\d+)MiB\s*/\s*(\d+)MiB\s*\|\s*(\d+|N/A)%?"
)
_THIRD = re.compile(r"\|\s*\|\s*\|\s*(Enabled|Disabled|N/A)\*?\s*\|")
_PROCESS = re.compile(r"\|\s+(\d+)\s+(?:\S+\s+\S+\s+)?(\d+)\s+([CGM+]+)\s+(\S.*?)\s+(\d+|N/A)(?:MiB)?\s*\|")
_KEY = re.compile(r"^(\s*)(\S.*?)\s*(?::\s(.*))?$")
_NUMBER = re.compile(r"[\d.]+")


def read_nvidia_smi(text: str) -> DriverFacts:
    """The table that `nvidia-smi` prints. Names are as wide as the table lets them. Raises SourceError."""
    lines = text.splitlines()
    versions = _VERSIONS.search(text)
    processes: dict[int, list[Process]] = {}
    for line in lines:
        found = _PROCESS.match(line)
        if found and found.group(5) is not None:
            used = None if found.group(5) == "N/A" else int(found.group(5)) * MIB
            processes.setdefault(int(found.group(1)), []).append(Process(int(found.group(2)), found.group(4), used))
    gpus = []
    for i, line in enumerate(lines[:-1]):
        first, second = _FIRST.match(line), _SECOND.match(lines[i + 1])
        if not first or not second:
            continue
        mig = _THIRD.match(lines[i + 2]) if i + 2 < len(lines) else None
        index, used, total = int(first.group(1)), int(second.group(4)) * MIB, int(second.group(5)) * MIB
        gpus.append(
            GpuFacts(
                index=index,
                name=first.group(2),
                total_bytes=total,
                used_bytes=used,
                utilization_pct=_int(second.group(6)),
                temperature_c=_int(second.group(1)),
                power_w=_float(second.group(2)),
                power_limit_w=_float(second.group(3)),
                ecc=_ecc(first.group(4)),
                mig=mig.group(1).lower() if mig and mig.group(1) != "N/A" else None,
                bus_id=first.group(3),
                processes=tuple(processes.get(index, ())),
            )
        )
    if not gpus:
        raise SourceError("no table of nvidia-smi here: expected rows such as “|   0  NVIDIA H100 …  1MiB / 81559MiB”")
    driver, cuda = versions.groups() if versions else (None, None)
    return DriverFacts("nvidia-smi", driver, None if cuda == "N/A" else cuda, tuple(gpus))


def _ecc(cell: str) -> str | None:
    """The table shows the number of uncorrected errors, Off, or N/A for a card without ECC."""
    if cell.isdigit():
        return f"{cell} uncorrected"
    return "disabled" if cell == "Off" else None


def read_nvidia_smi_query(text: str) -> DriverFacts:
    """The report that `nvidia-smi -q` prints: one section a GPU, keys under headings. Raises SourceError."""
    sections: list[tuple[str, dict[str, str], list[Process]]] = []
    top: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        found = _KEY.match(line)
        if not found:
            continue
        indent, name, value = len(found.group(1)), found.group(2), found.group(3)
        while path and path[-1][0] >= indent:
            path.pop()
        if indent == 0 and name.startswith("GPU ") and value is None:
            sections.append((name.removeprefix("GPU "), {}, []))
            continue
        facts = sections[-1][1] if sections else top
        if value is None:
            path.append((indent, name))
            continue
        if name == "Process ID" and sections:
            sections[-1][2].append(Process(int(_float(value) or 0), "", None))
        elif sections and sections[-1][2] and name in ("Name", "Used GPU Memory") and _in_processes(path):
            sections[-1][2][-1] = _extended(sections[-1][2][-1], name, value)
        key = "/".join([part for _, part in path] + [name])
        facts.setdefault(key, value.strip())
        path.append((indent, name))
    if not sections:
        raise SourceError("no report of nvidia-smi -q here: expected sections such as “GPU 00000000:04:00.0”")
    gpus = tuple(_gpu(i, bus, facts, ps) for i, (bus, facts, ps) in enumerate(sections))
    return DriverFacts("nvidia-smi -q", top.get("Driver Version"), _plain(top.get("CUDA Version")), gpus)


def _in_processes(path: Iterable[tuple[int, str]]) -> bool:
    return any(name in ("Processes", "Process ID") for _, name in path)


def _extended(process: Process, name: str, value: str) -> Process:
    if name == "Name":
        return Process(process.pid, value.strip(), process.used_bytes)
    return Process(process.pid, process.name, _mib(value))


def _gpu(index: int, bus: str, facts: dict[str, str], processes: list[Process]) -> GpuFacts:
    link = "PCI/GPU Link Info"
    return GpuFacts(
        index=index,
        name=facts.get("Product Name", "unknown"),
        total_bytes=_mib(facts.get("FB Memory Usage/Total")),
        used_bytes=_mib(facts.get("FB Memory Usage/Used")),
        free_bytes=_mib(facts.get("FB Memory Usage/Free")),
        reserved_bytes=_mib(facts.get("FB Memory Usage/Reserved")),
        utilization_pct=_int(_first(facts, "Utilization/Gpu", "Utilization/GPU")),
        memory_utilization_pct=_int(facts.get("Utilization/Memory")),
        temperature_c=_int(facts.get("Temperature/GPU Current Temp")),
        power_w=_float(_first(facts, "GPU Power Readings/Average Power Draw", "GPU Power Readings/Power Draw",
                              "GPU Power Readings/Instantaneous Power Draw", "Power Readings/Power Draw")),
        power_limit_w=_float(_first(facts, "GPU Power Readings/Current Power Limit", "Power Readings/Power Limit")),
        ecc=_plain(_first(facts, "ECC Mode/Current", "Ecc Mode/Current")),
        mig=_plain(facts.get("MIG Mode/Current")),
        pcie_generation=_int(facts.get(f"{link}/PCIe Generation/Current")),
        pcie_generation_max=_int(facts.get(f"{link}/PCIe Generation/Max")),
        pcie_width=_int(facts.get(f"{link}/Link Width/Current")),
        pcie_width_max=_int(facts.get(f"{link}/Link Width/Max")),
        bus_id=bus,
        processes=tuple(processes),
    )  # fmt: skip


def _first(facts: dict[str, str], *keys: str) -> str | None:
    return next((facts[key] for key in keys if facts.get(key) not in (None, "N/A")), None)


def _plain(value: str | None) -> str | None:
    return None if value is None or value.startswith("N/A") else value.lower() if value[0].isalpha() else value


def _float(value: str | None) -> float | None:
    found = _NUMBER.search(value or "")
    try:
        return float(found.group()) if found else None
    except ValueError:
        return None


def _int(value: str | None) -> int | None:
    number = _float(value)
    return None if number is None else int(number)


def _mib(value: str | None) -> int | None:
    number = _int(value)
    return None if number is None else number * MIB
