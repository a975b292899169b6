"""This machine's GPUs live: NVML (nvidia-ml-py) where it is installed, else `nvidia-smi -q`, AMD's tools or macOS's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from shutil import which
from typing import Any

from vramwise.errors import SourceError
from vramwise.hardware.machine.amd_tools import read_amd_smi, read_rocm_smi
from vramwise.hardware.machine.apple import SYSCTL, read_apple
from vramwise.hardware.machine.facts import DriverFacts, GpuFacts, Process
from vramwise.hardware.machine.nvidia_smi import read_nvidia_smi_query, with_slice_names

MOST_NVLINKS = 18
TIMEOUT_S = 20
ASKED_AGAIN_S = 300.0
"""A tool that did not answer is left alone for so long: its other reports would hang as well."""
_hung_at: dict[str, float] = {}


def this_machine() -> DriverFacts | None:
    """The driver's facts; None on a machine without a driver that answers. Never raises for a tool that is missing."""
    ways = (_through_nvml, _through_nvidia_smi, _through_amd_tools)
    for way in (_through_macos,) if sys.platform == "darwin" else ways:
        facts = way()
        if facts is not None:
            return facts
    return None


def nvidia_smi_text(*arguments: str) -> str | None:
    """What `nvidia-smi ARGUMENTS` prints; None where it is missing or fails."""
    return _text_of("nvidia-smi", *arguments)


def _text_of(tool: str, *arguments: str) -> str | None:
    program = which(tool)
    if program is None or time.monotonic() - _hung_at.get(program, -ASKED_AGAIN_S) < ASKED_AGAIN_S:
        return None
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        asked = subprocess.Popen([program, *arguments], stdin=nothing, stdout=pipe, stderr=nothing)
    except OSError:
        return None
    try:
        printed, _ = asked.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        _hung_at[program] = time.monotonic()
        asked.kill()
        with suppress(subprocess.TimeoutExpired):  # in the driver's hands it does not even end then
            asked.communicate(timeout=1)
        return None
    return printed.decode("utf-8", "replace") if asked.returncode == 0 else None


def silent_tools() -> list[str]:
    """Tools that were asked and did not answer in time, as nvidia-smi does not where a GPU is lost."""
    return sorted(os.path.basename(program) for program in _hung_at)


def _through_nvml() -> DriverFacts | None:
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        cuda = _ask(nvml, "nvmlSystemGetCudaDriverVersion")
        return DriverFacts(
            source="NVML",
            driver=_text(_ask(nvml, "nvmlSystemGetDriverVersion")),
            cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            gpus=tuple(_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())),
        )
    except nvml.NVMLError as error:
        return DriverFacts(source="NVML", notes=(f"NVML: {error}",))
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> GpuFacts:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(name: str, *arguments: object) -> Any:
        return _ask(nvml, name, handle, *arguments)

    memory, use = ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetUtilizationRates")
    ecc, mig = ask("nvmlDeviceGetEccMode"), ask("nvmlDeviceGetMigMode")
    capability = ask("nvmlDeviceGetCudaComputeCapability")
    power, limit = ask("nvmlDeviceGetPowerUsage"), ask("nvmlDeviceGetEnforcedPowerLimit")
    states = [ask("nvmlDeviceGetNvLinkState", link) for link in range(MOST_NVLINKS)]
    version = getattr(nvml, "nvmlMemory_v2", None)
    told = ask("nvmlDeviceGetMemoryInfo", version) if isinstance(version, int) else None
    return GpuFacts(
        index=index,
        name=_text(ask("nvmlDeviceGetName")) or "unknown",
        total_bytes=None if memory is None else int(memory.total),
        used_bytes=None if memory is None else int(memory.used),
        free_bytes=None if memory is None else int(memory.free),
        reserved_bytes=None if told is None else int(told.reserved),
        utilization_pct=None if use is None else int(use.gpu),
        memory_utilization_pct=None if use is None else int(use.memory),
        temperature_c=ask("nvmlDeviceGetTemperature", 0),
        power_w=None if power is None else power / 1000,
        power_limit_w=None if limit is None else limit / 1000,
        ecc=None if ecc is None else _mode(ecc[0]),
        mig=None if mig is None else _mode(mig[0]),
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        pcie_generation=ask("nvmlDeviceGetCurrPcieLinkGeneration"),
        pcie_generation_max=ask("nvmlDeviceGetMaxPcieLinkGeneration"),
        pcie_width=ask("nvmlDeviceGetCurrPcieLinkWidth"),
        pcie_width_max=ask("nvmlDeviceGetMaxPcieLinkWidth"),
        nvlinks_up=sum(state == 1 for state in states) if any(state is not None for state in states) else None,
        processes=_processes(nvml, handle),
        uuid=_text(ask("nvmlDeviceGetUUID")),
        slices=tuple(_slices(nvml, handle, index)) if mig is not None and mig[0] else (),
    )


def _processes(nvml: object, handle: object) -> tuple[Process, ...]:
    """Those that compute and, on a card that draws a desktop too, those that draw."""
    found: dict[int, Process] = {}
    for question in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
        for one in _ask(nvml, question, handle) or ():
            found.setdefault(one.pid, Process(one.pid, _name(nvml, one.pid), one.usedGpuMemory or None))
    return tuple(found.values())


def _slices(nvml: object, handle: object, index: int) -> Iterator[GpuFacts]:
    """The MIG devices of a card; places between them are empty."""
    for place in range(_ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        device = _ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
        if device is None:
            continue
        memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", device)
        yield GpuFacts(
            index=index,
            name=_text(_ask(nvml, "nvmlDeviceGetName", device)) or "unknown",
            total_bytes=None if memory is None else int(memory.total),
            used_bytes=None if memory is None else int(memory.used),
            free_bytes=None if memory is None else int(memory.free),
            processes=_processes(nvml, device),
            uuid=_text(_ask(nvml, "nvmlDeviceGetUUID", device)),
        )


def _name(nvml: object, pid: int) -> str:
    return _text(_ask(nvml, "nvmlSystemGetProcessName", pid)) or ""


def _ask(nvml: Any, question: str, *about: object) -> Any:
    """The answer, None where this GPU or driver does not know the question."""
    mismatch = getattr(nvml, "NVMLLibraryMismatchError", None)  # newer bindings on an older driver
    mismatches: tuple[type[Exception], ...] = (mismatch,) if isinstance(mismatch, type) else ()
    try:
        return getattr(nvml, question)(*about)
    except mismatches:
        return None if question.endswith("_v2") else _ask(nvml, f"{question}_v2", *about)
    except (nvml.NVMLError, AttributeError):
        return None


def _text(value: object) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else None if value is None else str(value)


def _mode(value: int) -> str:
    return "enabled" if value else "disabled"


def _through_nvidia_smi() -> DriverFacts | None:
    text = nvidia_smi_text("-q")
    if text is None:
        return None
    try:
        found = read_nvidia_smi_query(text)
    except SourceError as error:
        return DriverFacts(source="nvidia-smi -q", notes=(str(error),))
    if not any(gpu.slices for gpu in found.gpus):
        return found
    return with_slice_names(found, nvidia_smi_text("-L") or "")


def _through_macos() -> DriverFacts | None:
    known = _text_of("sysctl", *SYSCTL)
    try:
        profiler = _text_of("system_profiler", "SPDisplaysDataType", "-json")
        return None if known is None else read_apple(known, profiler, _text_of("vm_stat"))
    except SourceError:
        return None


def _through_amd_tools() -> DriverFacts | None:
    """`amd-smi static` and `metric` say most; older installations have `rocm-smi` alone."""
    parts = [_text_of("amd-smi", what) for what in ("static", "metric")]
    reports = ("--showproductname", "--showmeminfo", "vram", "--showuse", "--showtemp", "--showpower")
    sources = (("\n".join(filter(None, parts)), read_amd_smi), (_text_of("rocm-smi", *reports), read_rocm_smi))
    for text, reader in sources:
        try:
            if text:
                return reader(text)
        except SourceError as error:
            return DriverFacts(source="AMD's tools", notes=(str(error),))
    return None
