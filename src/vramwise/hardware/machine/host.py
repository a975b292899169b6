"""The host beside the GPUs: memory, shared memory, disks, processors."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from vramwise.records import record
from vramwise.units import KIB

MEMINFO = Path("/proc/meminfo")
SHARED_MEMORY = "/dev/shm"


@record
class Disk:
    """One file system by a path on it."""

    path: str
    total_bytes: int
    free_bytes: int


@record
class Host:
    """What an offload, a DataLoader or a checkpoint has at hand; None where the system does not tell."""

    processors: int | None
    memory_total_bytes: int | None
    memory_available_bytes: int | None
    shared_memory_bytes: int | None
    disks: tuple[Disk, ...]


def this_host() -> Host:
    """This machine; in a container the memory and processors of its host."""
    memory = _meminfo()
    paths = _file_systems(["/", str(Path.home()), str(Path.cwd())])
    return Host(
        processors=os.cpu_count(),
        memory_total_bytes=memory.get("MemTotal"),
        memory_available_bytes=memory.get("MemAvailable"),
        shared_memory_bytes=_disk_total(SHARED_MEMORY),
        disks=tuple(disk for path in paths if (disk := _disk(path)) is not None),
    )


def _file_systems(paths: Iterable[str]) -> list[str]:
    """The first path on each file system."""
    found: dict[int, str] = {}
    for path in paths:
        with suppress(OSError):
            found.setdefault(os.stat(path).st_dev, path)
    return list(found.values())


def _meminfo() -> dict[str, int]:
    """/proc/meminfo: values in units of 1,024 bytes, which it writes as kB."""
    found: dict[str, int] = {}
    with suppress(OSError, ValueError):
        for line in MEMINFO.read_text("utf-8").splitlines():
            name, _, value = line.partition(":")
            words = value.split()
            if len(words) == 2 and words[0].isdigit():
                found[name] = int(words[0]) * KIB
    return found


def _disk(path: str) -> Disk | None:
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return Disk(path, usage.total, usage.free)


def _disk_total(path: str) -> int | None:
    disk = _disk(path)
    return None if disk is None else disk.total_bytes
