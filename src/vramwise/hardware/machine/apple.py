"""Apple silicon by what macOS's own tools print: the chip, the memory it shares with the system, what is free of it.

`sysctl` says the chip's name (`machdep.cpu.brand_string`), the memory (`hw.memsize`) and, where somebody set it, what
the GPU may wire (`iogpu.wired_limit_mb`, 0 for the default); `system_profiler SPDisplaysDataType -json` the number of
GPU cores; `vm_stat` the pages. Free are pages that nobody uses and those that the system gives up when asked.
"""

from __future__ import annotations

import json
import re

from vramwise.errors import SourceError
from vramwise.hardware.machine.facts import DriverFacts, GpuFacts
from vramwise.units import MIB

SYSCTL = ("-n", "machdep.cpu.brand_string", "hw.memsize", "iogpu.wired_limit_mb")
_BYTES = re.compile(r"[0-9]{9,15}")
_PAGE = re.compile(r"page size of (\d{3,7}) bytes")
_PAGES = re.compile(r"^Pages (free|inactive|speculative|purgeable):\s+(\d{1,15})\.", re.MULTILINE)


def read_apple(sysctl: str, profiler: str | None, vm_stat: str | None) -> DriverFacts:
    """The one GPU of an Apple chip. Raises SourceError for a Mac without one."""
    lines = [line.strip() for line in sysctl.splitlines()]
    if len(lines) < 2 or not lines[0].startswith("Apple ") or not _BYTES.fullmatch(lines[1]):
        raise SourceError("no Apple silicon here: sysctl names another processor")
    memory = int(lines[1])
    limit = int(lines[2][:9]) * MIB if len(lines) > 2 and lines[2].isdecimal() else 0
    cores = _cores(profiler)
    name = f"{lines[0]}, {cores}-core" if cores else lines[0]
    notes = (f"the GPU may wire {lines[2]} MiB (iogpu.wired_limit_mb)",) if limit else ()
    kept = max(0, memory - limit) if limit else None
    gpu = GpuFacts(0, name, total_bytes=memory, free_bytes=_free(vm_stat, memory), reserved_bytes=kept)
    return DriverFacts("macOS", gpus=(gpu,), notes=notes)


def _cores(profiler: str | None) -> int | None:
    """The GPU's cores, by system_profiler; None where it does not say."""
    try:
        found = json.loads(profiler or "null")
    except (ValueError, RecursionError):
        return None
    displays = found.get("SPDisplaysDataType") if isinstance(found, dict) else None
    for one in displays if isinstance(displays, list) else ():
        cores = one.get("sppci_cores") if isinstance(one, dict) else None
        if isinstance(cores, str) and cores.isdecimal() and len(cores) < 5:
            return int(cores)
    return None


def _free(vm_stat: str | None, memory: int) -> int | None:
    page = _PAGE.search(vm_stat or "")
    pages = _PAGES.findall(vm_stat or "")
    return min(memory, int(page[1]) * sum(int(count) for _, count in pages)) if page and pages else None
