"""`nvidia-smi`'s table and `nvidia-smi -q`'s report as text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from vramwise.errors import SourceError
from vramwise.hardware.machine.facts import DriverFacts, GpuFacts, Process
from vramwise.hardware.machine.numbers_in_text import first_float, first_int, first_mib
from vramwise.units import MIB

_DRIVER = re.compile(r"Driver Version:\s*([\d.]+)")
_CUDA = re.compile(r"CUDA (?:\w+ )?Version:\s*([\d.]+|N/A)")
# lines of the table with every run of blanks as one, so that no part of an expression meets a blank twice
_FIRST = re.compile(r"\| (\d{1,9}) (\S[^|]*?) (?:On|Off|N/A) ?\| ?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+) \S+ ?\| ?(\S+) ?\|")
_SECOND = re.compile(
    r"\| ?\S+ (\d+|N/A)C? \S+ (\d+|N/A)W? ?/ ?(\d+|N/A)W? ?\| ?(\d{1,12})MiB ?/ ?(\d{1,12})MiB ?\| ?(\d+|N/A)%?"
)
_THIRD = re.compile(r"\| ?\| ?\| ?(Enabled|Disabled|N/A)\*? ?\|")
_PROCESS = re.compile(r"\| (\d{1,9}) (?:\S+ \S+ )?(\d{1,12}) ([CGM+]+) (\S[^|]*?) (\d{1,12}|N/A)(?:MiB)? ?\|")
_VALUE = re.compile(r":\s")
MIG_DEVICE, _DEVICES = "MIG Device", "MIG devices"
_LISTED_CARD = re.compile(r"GPU (\d{1,4}): ")
_LISTED_SLICE = re.compile(r"\s+(MIG \S{1,40})\s+Device\s+\d{1,3}: \(UUID: ([\w/-]{1,80})\)")


def read_nvidia_smi(text: str) -> DriverFacts:
    """The table that `nvidia-smi` prints. Names are as wide as the table lets them. Raises SourceError."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    driver, cuda = _versions(lines)
    processes: dict[int, list[Process]] = {}
    for line in lines:
        found = _PROCESS.match(line)
        if found:
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
                utilization_pct=first_int(second.group(6)),
                temperature_c=first_int(second.group(1)),
                power_w=first_float(second.group(2)),
                power_limit_w=first_float(second.group(3)),
                ecc=_ecc(first.group(4)),
                mig=mig.group(1).lower() if mig and mig.group(1) != "N/A" else None,
                bus_id=first.group(3),
                processes=tuple(processes.get(index, ())),
            )
        )
    if not gpus:
        raise SourceError("no table of nvidia-smi here: expected rows such as “|   0  NVIDIA H100 …  1MiB / 81559MiB”")
    return DriverFacts("nvidia-smi", driver, None if cuda == "N/A" else cuda, tuple(gpus))


def _versions(lines: Iterable[str]) -> tuple[str | None, str | None]:
    """Driver and CUDA of the first line that states both."""
    for line in lines:
        driver = _DRIVER.search(line)
        cuda = _CUDA.search(line, driver.end()) if driver else None
        if driver and cuda:
            return driver.group(1), cuda.group(1)
    return None, None


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
        body = line.strip()
        if not body:
            continue
        split = _VALUE.search(line.lstrip())
        indent = len(line) - len(line.lstrip())
        name = line.lstrip()[: split.start()].rstrip() if split else body
        value = line.lstrip()[split.end() :] if split else None
        while path and path[-1][0] >= indent:
            path.pop()
        if indent == 0 and name.startswith("GPU ") and value is None:
            sections.append((name.removeprefix("GPU "), {}, []))
            continue
        facts = sections[-1][1] if sections else top
        if value is None:
            if name == MIG_DEVICE and sections:
                facts[_DEVICES] = str(int(facts.get(_DEVICES, "0")) + 1)
                name = f"{MIG_DEVICE} {facts[_DEVICES]}"
            path.append((indent, name))
            continue
        if name == "Process ID" and sections:
            sections[-1][2].append(Process(int(first_float(value) or 0), "", None))
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
    return Process(process.pid, process.name, first_mib(value))


def _gpu(index: int, bus: str, facts: dict[str, str], processes: list[Process]) -> GpuFacts:
    link = "PCI/GPU Link Info"
    return GpuFacts(
        index=index,
        name=facts.get("Product Name", "unknown"),
        total_bytes=first_mib(facts.get("FB Memory Usage/Total")),
        used_bytes=first_mib(facts.get("FB Memory Usage/Used")),
        free_bytes=first_mib(facts.get("FB Memory Usage/Free")),
        reserved_bytes=first_mib(facts.get("FB Memory Usage/Reserved")),
        utilization_pct=first_int(_first(facts, "Utilization/Gpu", "Utilization/GPU")),
        memory_utilization_pct=first_int(facts.get("Utilization/Memory")),
        temperature_c=first_int(facts.get("Temperature/GPU Current Temp")),
        power_w=first_float(_first(facts, "GPU Power Readings/Average Power Draw", "GPU Power Readings/Power Draw",
                              "GPU Power Readings/Instantaneous Power Draw", "Power Readings/Power Draw")),
        power_limit_w=first_float(_first(facts, "GPU Power Readings/Current Power Limit",
                                         "Power Readings/Power Limit")),
        ecc=_plain(_first(facts, "ECC Mode/Current", "Ecc Mode/Current")),
        mig=_plain(facts.get("MIG Mode/Current")),
        pcie_generation=first_int(facts.get(f"{link}/PCIe Generation/Current")),
        pcie_generation_max=first_int(facts.get(f"{link}/PCIe Generation/Max")),
        pcie_width=first_int(facts.get(f"{link}/Link Width/Current")),
        pcie_width_max=first_int(facts.get(f"{link}/Link Width/Max")),
        bus_id=bus,
        processes=tuple(processes),
        uuid=_plain_id(facts.get("GPU UUID")),
        slices=tuple(_slice(index, facts, place) for place in range(1, int(facts.get(_DEVICES, "0")) + 1)),
    )  # fmt: skip


def _slice(index: int, facts: dict[str, str], place: int) -> GpuFacts:
    """A MIG device of the report, which names neither its profile nor its UUID."""
    start = f"{MIG_DEVICE} {place}/FB Memory Usage"
    return GpuFacts(
        index=index,
        name=f"{facts.get('Product Name', 'unknown')} MIG",
        total_bytes=first_mib(facts.get(f"{start}/Total")),
        used_bytes=first_mib(facts.get(f"{start}/Used")),
        free_bytes=first_mib(facts.get(f"{start}/Free")),
    )


def with_slice_names(found: DriverFacts, listed: str) -> DriverFacts:
    """The report with the profiles and UUIDs that `nvidia-smi -L` lists, in the same order."""
    names: dict[int, list[tuple[str, str]]] = {}
    index = -1
    for line in listed.splitlines():
        if card := _LISTED_CARD.match(line):
            index = int(card[1])
        elif device := _LISTED_SLICE.match(line):
            names.setdefault(index, []).append((device[1], device[2]))
    return replace(found, gpus=tuple(_named_slices(gpu, names.get(gpu.index, [])) for gpu in found.gpus))


def _named_slices(gpu: GpuFacts, names: list[tuple[str, str]]) -> GpuFacts:
    if len(names) != len(gpu.slices):
        return gpu
    pairs = zip(gpu.slices, names, strict=True)
    return replace(gpu, slices=tuple(replace(one, name=f"{gpu.name} {name}", uuid=uuid) for one, (name, uuid) in pairs))


def _plain_id(value: str | None) -> str | None:
    return None if value is None or value.startswith("N/A") else value


def _first(facts: dict[str, str], *keys: str) -> str | None:
    return next((facts[key] for key in keys if facts.get(key) not in (None, "N/A")), None)


def _plain(value: str | None) -> str | None:
    return None if value is None or value.startswith("N/A") else value.lower() if value[0].isalpha() else value
