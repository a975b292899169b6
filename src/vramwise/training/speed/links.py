"""Seconds of a collective, by the slowest link that its ranks share.

    all-gather, reduce-scatter    bytes · (n - 1) / n / bandwidth     all-reduce twice that (NCCL's rings:
    all-to-all                    as an all-gather                    nccl-tests doc/PERFORMANCE.md "bus bandwidth")

Within a node bandwidth is one direction of NVLink, else of PCIe; across nodes, the network of a whole node, which the
rings of its GPUs share. `bytes` are those of the whole tensor on one rank.
"""

from __future__ import annotations

from vramwise.hardware import Gpu
from vramwise.records import record
from vramwise.tables import table
from vramwise.utilization.throughput import GIGA

_PCIE_GB_S = {"2.0": 8.0, "3.0": 15.75, "4.0": 31.5, "5.0": 63.0, "6.0": 121.0}
"""One direction of 16 lanes, by generation (PCI-SIG; 128b/130b coding counted)."""
_GIGABIT = GIGA / 8


@record
class Links:
    """Bytes a second of one rank's collectives, within a node and across nodes, of copies from host to card, and of a
    host's memory. `network_gbit_s`: of a whole node."""

    within: float
    across: float
    host: float
    host_memory: float
    gpus_per_node: int
    network_gbit_s: float

    def gather_s(self, nbytes: float, ranks: int, stride: int = 1) -> float:
        """All-gather or reduce-scatter of a tensor among ranks that stand `stride` apart."""
        if ranks <= 1:
            return 0.0
        spans = ranks * stride > self.gpus_per_node
        return nbytes * (ranks - 1) / ranks / (min(self.across, self.within) if spans else self.within)

    def reduce_s(self, nbytes: float, ranks: int, stride: int = 1) -> float:
        """All-reduce."""
        return 2 * self.gather_s(nbytes, ranks, stride)


def links_of(gpu: Gpu, gpus_per_node: int, network_gbit_s: float | None) -> Links:
    """The links between cards of one kind; `network_gbit_s`: of a whole node, None: what such nodes usually have."""
    shares = {row["name"]: row.number("expected") for row in table(__file__, "links")}
    host = _pcie_gb_s(gpu) * GIGA
    if gpu.is_linked and gpu.nvlink_gb_s is not None:
        within = gpu.nvlink_gb_s / 2 * GIGA * shares["nvlink_share"]
        usual = shares["network_newer_gbit_s" if gpu.nvlink_gb_s >= 900 else "network_older_gbit_s"]
    else:
        within, usual = host * shares["pcie_share"], shares["network_plain_gbit_s"]
    network = network_gbit_s or usual
    across, own = network * _GIGABIT * shares["network_share"], host * shares["host_share"]
    return Links(within, across, own, shares["host_memory_gb_s"] * GIGA, gpus_per_node, network)


def _pcie_gb_s(gpu: Gpu) -> float:
    """One direction of the card's slot."""
    generation = next((rate for name, rate in _PCIE_GB_S.items() if name in gpu.pcie), _PCIE_GB_S["4.0"])
    lanes = next((int(word[1:]) for word in gpu.pcie.split() if word[:1] == "x" and word[1:].isdigit()), 16)
    return generation * lanes / 16
