"""Time and memory of whole processes, as the operating system accounts for each finished one."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

KIB_PER_MIB = 1024  # Linux reports the largest resident set in KiB


@dataclass(frozen=True)
class Run:
    """One finished process."""

    wall_s: float
    cpu_s: float
    peak_mib: float


@dataclass(frozen=True)
class Summary:
    """Medians over the runs of one command, and the range of its wall times."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    fastest_s: float
    slowest_s: float


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Run:
    """Run `command` with its output thrown away. Raises RuntimeError when it fails."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    start = time.perf_counter()
    child = os.posix_spawn(
        command[0],
        list(command),
        {**os.environ, **(environment or {})},
        file_actions=[(os.POSIX_SPAWN_DUP2, nowhere, 1)],
    )
    _, status, usage = os.wait4(child, 0)
    wall_s = time.perf_counter() - start
    os.close(nowhere)
    code = os.waitstatus_to_exitcode(status)
    if code:
        raise RuntimeError(f"{' '.join(command)}: exit code {code}")
    return Run(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / KIB_PER_MIB)


def summary(runs: Sequence[Run]) -> Summary:
    """The medians of `runs`."""
    walls = [one.wall_s for one in runs]
    return Summary(
        wall_s=statistics.median(walls),
        cpu_s=statistics.median(one.cpu_s for one in runs),
        peak_mib=statistics.median(one.peak_mib for one in runs),
        fastest_s=min(walls),
        slowest_s=max(walls),
    )


def machine() -> str:
    """One line about where this was taken."""
    import platform

    name = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ""
    )
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return f"Python {platform.python_version()}, {cores} cores ({name or platform.machine()}), load {load:.1f}"


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError:
        return []
