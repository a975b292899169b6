"""Text that a colleague pasted or saved: which tools' output is in it, and what each says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from vramwise.errors import SourceError
from vramwise.files import short_text
from vramwise.hardware.machine.amd_tools import read_amd_smi, read_rocm_smi
from vramwise.hardware.machine.exporter import FIELDS, Sample, read_exporter
from vramwise.hardware.machine.facts import DriverFacts
from vramwise.hardware.machine.matrix_text import MANGLED
from vramwise.hardware.machine.nccl_tests import NcclTest, read_nccl_test
from vramwise.hardware.machine.nvidia_smi import read_nvidia_smi, read_nvidia_smi_query
from vramwise.hardware.machine.nvidia_smi_csv import read_nvidia_smi_csv
from vramwise.hardware.machine.nvlink_status import NvlinkStatus, read_nvlink_status
from vramwise.hardware.machine.peer_access import PeerAccess, read_peer_access
from vramwise.hardware.machine.reports import Report, read_collect_env, read_ds_report
from vramwise.hardware.machine.topology import Topology, read_amd_topology, read_topology

READERS: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("nvidia-smi -q", read_nvidia_smi_query),
    ("nvidia-smi", read_nvidia_smi),
    ("nvidia-smi --query-gpu", read_nvidia_smi_csv),
    ("amd-smi", read_amd_smi),
    ("rocm-smi", read_rocm_smi),
    ("nvidia-smi topo -m", read_topology),
    ("AMD link types", read_amd_topology),
    ("nvidia-smi topo -p2p", read_peer_access),
    ("nvidia-smi nvlink -s", read_nvlink_status),
    ("ds_report", read_ds_report),
    ("collect_env", read_collect_env),
    ("nccl-tests", read_nccl_test),
    ("GPU exporter", read_exporter),
)
MOST_LINES = 50_000
LONGEST_LINE = 2048
MOST_GPUS = 256
"""A tool lists the GPUs of one machine; an exporter's samples are several a GPU."""
DRIVERS = ("nvidia-smi -q", "nvidia-smi --query-gpu", "nvidia-smi", "amd-smi", "rocm-smi")


@dataclass(frozen=True)
class Pasted:
    """What was found, by tool."""

    driver: DriverFacts | None = None
    topology: Topology | None = None
    peer_access: PeerAccess | None = None
    nvlink: tuple[NvlinkStatus, ...] = ()
    reports: tuple[Report, ...] = ()
    nccl: NcclTest | None = None
    samples: tuple[Sample, ...] = ()
    kinds: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_pasted(text: str, name: str = "text") -> Pasted:
    """Everything that any reader finds; one text may hold several tools' output.

    Lines behind MOST_LINES, what stands in a line behind LONGEST_LINE and GPUs behind MOST_GPUS are not looked at.
    Raises SourceError where nothing is known, or a topology matrix is mangled.
    """
    notes = [f"only the first {MOST_LINES:,} lines were read"] if text.count("\n") > MOST_LINES else []
    text = short_text(text, MOST_LINES, LONGEST_LINE)
    found: dict[str, Any] = {}
    for kind, reader in READERS:
        try:
            found[kind] = reader(text)
        except SourceError as error:
            if str(error).startswith(MANGLED):
                raise SourceError(f"{name}: {error}") from None
    if not found:
        kinds = ", ".join(kind for kind, _ in READERS)
        raise SourceError(f"{name}: no output of a tool that is known: {kinds}")
    driver: DriverFacts | None = next((found[kind] for kind in DRIVERS if kind in found), None)
    if driver is not None and len(driver.gpus) > MOST_GPUS:
        notes.append(f"of {len(driver.gpus):,} GPUs the first {MOST_GPUS} are shown")
    return Pasted(
        notes=tuple(notes),
        driver=None if driver is None else replace(driver, gpus=driver.gpus[:MOST_GPUS]),
        topology=found.get("nvidia-smi topo -m") or found.get("AMD link types"),
        peer_access=found.get("nvidia-smi topo -p2p"),
        nvlink=tuple(found.get("nvidia-smi nvlink -s", ())),
        reports=tuple(found[kind] for kind in ("ds_report", "collect_env") if kind in found),
        nccl=found.get("nccl-tests"),
        samples=tuple(found.get("GPU exporter", ()))[: MOST_GPUS * len(FIELDS)],
        kinds=tuple(found),
    )
