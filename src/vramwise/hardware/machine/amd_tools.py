"""AMD's tools as text: `rocm-smi` (table, --showproductname, --showmeminfo, …), `amd-smi` (table, static, metric).

Both write MB where they mean 2^20 bytes: an MI300X, 192 GiB, is “196592 MB” there.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

from vramwise.errors import SourceError
from vramwise.hardware.machine.facts import DriverFacts, GpuFacts
from vramwise.hardware.machine.numbers_in_text import first_float, first_int, first_mib

_FACT = re.compile(r"(?:GPU|HCU)\[(\d{1,4})\] ?: ?(.+)")
_NAMES = ("Card Series", "Card series", "Device Name", "Card Model", "Card model")
_POWERS = ("Current Socket Graphics Package Power (W)", "Average Graphics Package Power (W)")
_HEATS = ("Temperature (Sensor junction) (C)", "Temperature (Sensor edge) (C)")
_CONCISE = re.compile(r"(?:GPU|Device) .*VRAM% GPU%$")
_CONCISE_ROW = re.compile(r"(\d{1,4}) .*? (\d{1,4}|N/A)%? (\d{1,4}|N/A)%?$")
_WATTS = re.compile(r"(?<![\d.])([\d.]+)W\b")
_CELSIUS = re.compile(r"(?<![\d.])([\d.]+)\s?°?[cC]\b")
_VERSIONS = re.compile(r"amdgpu version: (\S+)\s+ROCm version: (\S+)")
_TABLE_FIRST = re.compile(
    r"\| ?([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d) (\S[^|]*?) ?\| ?(\S+)(?: %)? (\S+)(?: °C)? (\S+) "
    r"([\d.]+|N/A)/([\d.]+|N/A) W ?\|"
)
_TABLE_SECOND = re.compile(r"\| ?(\d{1,4}) \S+ \S+ \S+ ?\| ?([\d.]+|N/A)(?: %)? \S+(?: %)? (\d+|N/A)/(\d+|N/A) MB ?\|")
_INDEX = re.compile(r"[0-9]{1,4}")
_SECTION = re.compile(r"([A-Za-z][\w ()/-]*):(?:\s+(\S.*))?$")
_PCIE_GENERATION = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""Generation by GT/s a lane (PCI-SIG)."""


def read_rocm_smi(text: str) -> DriverFacts:
    """The table of `rocm-smi`, and the lines `GPU[0] : …` of its other reports. Raises SourceError."""
    facts: dict[int, dict[str, str]] = {}
    for line in text.splitlines():
        found = _FACT.match(" ".join(line.split()))
        name, colon, value = found.group(2).partition(": ") if found else ("", "", "")
        if found and name and colon and int(found.group(1)) < 1024:
            facts.setdefault(int(found.group(1)), {}).setdefault(name.rstrip(), value)
    rows = _concise(text)
    if not facts and not rows:
        raise SourceError("no output of rocm-smi here: expected “GPU[0] : Card Series: …” or a table with VRAM%, GPU%")
    gpus = [_of_facts(index, facts.get(index, {}), rows.get(index)) for index in sorted({*facts, *rows})]
    driver = re.search(r"^Driver version:\s*(\S+)", text, re.MULTILINE)
    shares = [f"GPU {i}: {row['vram_pct']} % of its memory is used" for i, row in rows.items() if row["vram_pct"]]
    shares = [] if any(gpu.used_bytes is not None for gpu in gpus) else shares
    return DriverFacts("rocm-smi", driver.group(1) if driver else None, None, tuple(gpus), tuple(shares))


def _concise(text: str) -> dict[int, dict[str, object]]:
    """Rows of the table whose last two columns are VRAM% and GPU%."""
    rows: dict[int, dict[str, object]] = {}
    inside = False
    for line in text.splitlines():
        plain = " ".join(line.split())
        inside = inside or _CONCISE.match(plain) is not None
        row = _CONCISE_ROW.match(plain) if inside else None
        if row:
            watts, heat = _WATTS.findall(line), _CELSIUS.findall(line)
            rows[int(row.group(1))] = {
                "vram_pct": first_int(row.group(2)),
                "use_pct": first_int(row.group(3)),
                "power_w": first_float(watts[0]) if watts else None,
                "limit_w": first_float(watts[-1]) if len(watts) > 1 else None,
                "heat_c": first_int(heat[0]) if heat else None,
            }
    return rows


def _of_facts(index: int, facts: dict[str, str], row: dict[str, object] | None) -> GpuFacts:
    def first(*keys: str) -> str | None:
        return next((facts[key] for key in keys if facts.get(key) not in (None, "N/A")), None)

    row = row or {}
    total, used = first_int(first("VRAM Total Memory (B)")), first_int(first("VRAM Total Used Memory (B)"))
    return GpuFacts(
        index=index,
        name=first(*_NAMES) or "AMD GPU",
        total_bytes=total,
        used_bytes=used,
        free_bytes=None if total is None or used is None else total - used,
        utilization_pct=_or(first_int(first("GPU use (%)")), row.get("use_pct")),
        temperature_c=_or(first_int(first(*_HEATS)), row.get("heat_c")),
        power_w=_or(first_float(first(*_POWERS)), row.get("power_w")),
        power_limit_w=_or(first_float(first("Max Graphics Package Power (W)")), row.get("limit_w")),
        compute_capability=first("GFX Version"),
        bus_id=first("PCI Bus"),
    )


def read_amd_smi(text: str) -> DriverFacts:
    """The table of `amd-smi`, or the sections of `amd-smi static` and `amd-smi metric`, or both. Raises SourceError."""
    gpus = _table(text)
    for index, facts in _sections(text).items():
        gpus[index] = _merged(gpus.get(index), _of_sections(index, facts))
    if not gpus:
        raise SourceError("no output of amd-smi here: expected its table, or sections such as “GPU: 0”, ASIC, VRAM")
    versions = _VERSIONS.search(text)
    driver, rocm = versions.groups() if versions else (None, None)
    notes = (f"ROCm {rocm}",) if rocm not in (None, "N/A") else ()
    return DriverFacts("amd-smi", driver, None, tuple(gpus[index] for index in sorted(gpus)), notes)


def _table(text: str) -> dict[int, GpuFacts]:
    lines = [" ".join(line.split()) for line in text.splitlines()]
    found: dict[int, GpuFacts] = {}
    for line, below in pairwise(lines):
        first, second = _TABLE_FIRST.search(line), _TABLE_SECOND.search(below)
        if not first or not second:
            continue
        index, used, total = int(second.group(1)), first_mib(second.group(3)), first_mib(second.group(4))
        found[index] = GpuFacts(
            index=index,
            name=first.group(2).removeprefix("..."),
            total_bytes=total,
            used_bytes=used,
            free_bytes=None if total is None or used is None else total - used,
            utilization_pct=first_int(second.group(2)),
            memory_utilization_pct=first_int(first.group(3)),
            temperature_c=first_int(first.group(4)),
            power_w=first_float(first.group(6)),
            power_limit_w=first_float(first.group(7)),
            bus_id=first.group(1),
        )
    return found


def _sections(text: str) -> dict[int, dict[str, str]]:
    """Keys with the headings above them, by GPU: `VRAM/SIZE`."""
    found: dict[int, dict[str, str]] = {}
    path: list[tuple[int, str]] = []
    facts: dict[str, str] | None = None
    for line in text.splitlines():
        match = _SECTION.match(line.strip())
        if not match:
            continue
        indent, key, value = len(line) - len(line.lstrip()), match.group(1).strip(), match.group(2)
        if key == "GPU" and value is not None and _INDEX.fullmatch(value):
            facts, path = found.setdefault(int(value), {}), [(indent, key)]
            continue
        while path and path[-1][0] >= indent:
            path.pop()
        if facts is not None and value is not None and path:
            facts.setdefault("/".join([*(name for _, name in path[1:]), key]), value)
        path.append((indent, key))
    return {index: facts for index, facts in found.items() if any("/" in key for key in facts)}


def _of_sections(index: int, facts: dict[str, str]) -> GpuFacts:
    def first(*keys: str) -> str | None:
        return next((facts[key] for key in keys if facts.get(key) not in (None, "N/A")), None)

    return GpuFacts(
        index=index,
        name=first("ASIC/MARKET_NAME", "BOARD/PRODUCT_NAME") or "AMD GPU",
        total_bytes=first_mib(first("MEM_USAGE/TOTAL_VRAM", "VRAM/SIZE")),
        used_bytes=first_mib(first("MEM_USAGE/USED_VRAM")),
        free_bytes=first_mib(first("MEM_USAGE/FREE_VRAM")),
        utilization_pct=first_int(first("USAGE/GFX_ACTIVITY")),
        memory_utilization_pct=first_int(first("USAGE/UMC_ACTIVITY")),
        temperature_c=first_int(first("TEMPERATURE/HOTSPOT", "TEMPERATURE/EDGE")),
        power_w=first_float(first("POWER/SOCKET_POWER")),
        power_limit_w=first_float(first("LIMIT/SOCKET_POWER", "LIMIT/MAX_POWER")),
        compute_capability=first("ASIC/TARGET_GRAPHICS_VERSION"),
        pcie_generation=_generation(first("PCIE/SPEED")),
        pcie_generation_max=_generation(first("BUS/MAX_PCIE_SPEED")),
        pcie_width=first_int(first("PCIE/WIDTH")),
        pcie_width_max=first_int(first("BUS/MAX_PCIE_WIDTH")),
        bus_id=first("BUS/BDF"),
    )


def _merged(table: GpuFacts | None, sections: GpuFacts) -> GpuFacts:
    """The table's facts, with what only the sections say; their name is not cut off."""
    if table is None:
        return sections
    missing: dict[str, Any] = {
        name: getattr(sections, name)
        for name in GpuFacts.__dataclass_fields__
        if getattr(table, name) is None and getattr(sections, name) is not None
    }
    missing |= {} if sections.name == "AMD GPU" else {"name": sections.name}
    return replace(table, **missing)


def _generation(speed: str | None) -> int | None:
    rate = first_float(speed)
    return None if rate is None else _PCIE_GENERATION.get(rate)


def _or(one: object, other: object) -> Any:
    return other if one is None else one
