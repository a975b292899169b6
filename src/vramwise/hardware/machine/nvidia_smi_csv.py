"""`nvidia-smi --query-gpu=… --format=csv` as text: one line of names with units, one line a GPU."""

from __future__ import annotations

import csv
import re

from vramwise.errors import SourceError
from vramwise.hardware.machine.facts import DriverFacts, GpuFacts
from vramwise.hardware.machine.numbers_in_text import first_float, first_int, first_mib

_STATED = re.compile(r"-?[\d.]")
_KNOWN = ("memory.total", "memory.used", "utilization.gpu", "pcie.link.gen.current", "pcie.link.width.current",
          "driver_version", "compute_cap", "power.draw", "temperature.gpu")  # fmt: skip
LEAST_COLUMNS = 2


def read_nvidia_smi_csv(text: str) -> DriverFacts:
    """The GPUs of the first such table. Raises SourceError, also where a row has another number of columns."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if len(_known(_cells(line))) >= LEAST_COLUMNS), None)
    if start is None:
        raise SourceError("no table of nvidia-smi --query-gpu here: expected a line such as “name, memory.total [MiB]”")
    names = [_name(cell) for cell in _cells(lines[start])]
    rows = []
    for line in lines[start + 1 :]:
        cells = _cells(line)
        if len(cells) < LEAST_COLUMNS:
            break
        if len(cells) != len(names):
            raise SourceError(f"no table of nvidia-smi --query-gpu: a row has {len(cells)} of {len(names)} columns")
        rows.append(dict(zip(names, cells, strict=True)))
    if not rows:
        raise SourceError("no table of nvidia-smi --query-gpu here: its first line has no GPUs below it")
    gpus = tuple(_gpu(place, row) for place, row in enumerate(rows))
    return DriverFacts("nvidia-smi --query-gpu", _plain(rows[0].get("driver_version")), None, gpus)


def _gpu(place: int, row: dict[str, str]) -> GpuFacts:
    index = first_int(_stated(row.get("index")))
    return GpuFacts(
        index=place if index is None else index,
        name=_plain(row.get("name") or row.get("gpu_name")) or "unknown",
        total_bytes=first_mib(_stated(row.get("memory.total"))),
        used_bytes=first_mib(_stated(row.get("memory.used"))),
        free_bytes=first_mib(_stated(row.get("memory.free"))),
        reserved_bytes=first_mib(_stated(row.get("memory.reserved"))),
        utilization_pct=first_int(_stated(row.get("utilization.gpu"))),
        memory_utilization_pct=first_int(_stated(row.get("utilization.memory"))),
        temperature_c=first_int(_stated(row.get("temperature.gpu"))),
        power_w=first_float(_stated(row.get("power.draw") or row.get("power.draw.average"))),
        power_limit_w=first_float(_stated(row.get("power.limit") or row.get("enforced.power.limit"))),
        ecc=_mode(row.get("ecc.mode.current")),
        mig=_mode(row.get("mig.mode.current")),
        compute_capability=_plain(row.get("compute_cap")),
        pcie_generation=first_int(_stated(row.get("pcie.link.gen.current") or row.get("pcie.link.gen.gpucurrent"))),
        pcie_generation_max=first_int(_stated(row.get("pcie.link.gen.max"))),
        pcie_width=first_int(_stated(row.get("pcie.link.width.current"))),
        pcie_width_max=first_int(_stated(row.get("pcie.link.width.max"))),
        bus_id=_plain(row.get("pci.bus_id") or row.get("gpu_bus_id")),
    )


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line]), [])]


def _known(cells: list[str]) -> list[str]:
    return [cell for cell in cells if _name(cell) in _KNOWN]


def _name(cell: str) -> str:
    """`memory.total [MiB]` without its unit."""
    return cell.partition("[")[0].rstrip() if cell.endswith("]") else cell


def _plain(cell: str | None) -> str | None:
    return None if cell is None or cell.startswith("[") or cell in ("", "N/A") else cell


def _mode(cell: str | None) -> str | None:
    known = _plain(cell)
    return None if known is None else known.lower()


def _stated(cell: str | None) -> str | None:
    """The cell where it begins with a number: “[Unknown Error 15]” states none."""
    return cell if cell and _STATED.match(cell) else None
