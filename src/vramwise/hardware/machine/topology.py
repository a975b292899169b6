"""`nvidia-smi topo -m`: which GPUs NVLink joins, which pairs cross sockets, and the best groups for tensor parallel."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

from vramwise.errors import SourceError
from vramwise.hardware.machine.amd_links import is_amd, read_amd_links
from vramwise.hardware.machine.matrix_text import MANGLED, blocks, cells_of
from vramwise.hardware.machine.peer_access import is_peer_access

MEANING = {
    "NV": "NVLink",
    "PIX": "one PCIe bridge",
    "PXB": "several PCIe bridges, not the CPU",
    "PHB": "the CPU's PCIe host bridge",
    "NODE": "two host bridges of one NUMA node",
    "SYS": "the link between sockets (NUMA nodes)",
    "XGMI": "Infinity Fabric",
    "PCIE": "PCIe",
}
_WORST_FIRST = ("SYS", "NODE", "PHB", "PCIE", "PXB", "PIX", "XGMI", "NV")
MOST_CHOICES = 20_000
"""Sixteen GPUs in groups of eight are 6,435 choices; larger machines have NVSwitch, where all are alike."""
_LINK = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV\d+")


@dataclass(frozen=True)
class Topology:
    """Devices in the order of the columns and the link of each pair (`NV18`, `PIX`, …, `X` with itself)."""

    devices: tuple[str, ...]
    matrix: tuple[tuple[str, ...], ...]
    affinity: tuple[str, ...]

    @property
    def gpus(self) -> tuple[str, ...]:
        """GPUs alone."""
        return tuple(device for device in self.devices if device.startswith("GPU"))

    @property
    def nics(self) -> tuple[str, ...]:
        """Network adapters alone."""
        return tuple(device for device in self.devices if not device.startswith("GPU"))

    def link(self, one: str, other: str) -> str:
        """How two devices are joined."""
        return self.matrix[self.devices.index(one)][self.devices.index(other)]

    def pairs(self) -> dict[str, int]:
        """Number of GPU pairs by link."""
        return dict(Counter(self.link(*pair) for pair in combinations(self.gpus, 2)).most_common())

    def nearest_nics(self, gpu: str) -> tuple[str, ...]:
        """The adapters that are the fewest hops from a GPU."""
        best = max((_rank(self.link(gpu, nic)) for nic in self.nics), default=None)
        return tuple(nic for nic in self.nics if _rank(self.link(gpu, nic)) == best)

    def groups(self, size: int) -> list[tuple[tuple[str, ...], str]]:
        """GPUs in groups of `size` whose slowest link is as fast as can be, each with that link.

        Greedy from the first GPU on: every choice of its partners is tried, or where those are more than MOST_CHOICES
        the best partner at a time; what does not fill a group is left out.
        """
        left, found = list(self.gpus), []
        while len(left) >= size > 1:
            first, *others = left
            if comb(len(others), size - 1) <= MOST_CHOICES:
                best = max(combinations(others, size - 1), key=lambda rest: self._quality((first, *rest)))
                group = (first, *best)
            else:
                group = self._grown(first, others, size)
            found.append((group, self._slowest(group)))
            left = [gpu for gpu in left if gpu not in group]
        return found

    def looks_virtual(self) -> bool:
        """Whether every link but NVLink reads PHB: in a virtual machine that class says nothing about speed."""
        others = {self.link(*pair) for pair in combinations(self.devices, 2)}
        plain = {link for link in others if not link.startswith("NV")}
        return plain == {"PHB"} and len(self.nics) > 1

    def _grown(self, first: str, others: Sequence[str], size: int) -> tuple[str, ...]:
        group: tuple[str, ...] = (first,)
        while len(group) < size:
            left = (gpu for gpu in others if gpu not in group)
            group = (*group, max(left, key=lambda gpu: self._quality((*group, gpu))))
        return group

    def _slowest(self, group: Sequence[str]) -> str:
        return min((self.link(*pair) for pair in combinations(group, 2)), key=_rank)

    def _quality(self, group: Sequence[str]) -> tuple[tuple[int, int], int]:
        links = [_rank(self.link(*pair)) for pair in combinations(group, 2)]
        return min(links), sum(kind * 100 + count for kind, count in links)


def read_topology(text: str) -> Topology:
    """The matrix that `nvidia-smi topo -m` printed, with tabs or as pasted with blanks.

    Raises SourceError where cells or rows are missing or the matrix is not symmetric: a terminal or a paste mangled it,
    and a guess could be wrong.
    """
    block = next((block for block in blocks(text) if not is_peer_access(block) and not is_amd(block)), None)
    if block is None:
        raise SourceError("no matrix of nvidia-smi topo -m here: expected a line with GPU0, GPU1, …")
    topology = Topology(block.devices, *cells_of(block, _LINK, "nvidia-smi topo -m"))
    _refuse_asymmetry(topology)
    return topology


def read_amd_topology(text: str) -> Topology:
    """The links that AMD's tools printed. Raises SourceError as `read_topology` does."""
    devices, matrix = read_amd_links(text)
    return Topology(devices, matrix, ("",) * len(devices))


def _refuse_asymmetry(topology: Topology) -> None:
    for i, device in enumerate(topology.devices):
        for j in range(i):
            if topology.matrix[i][j] != topology.matrix[j][i]:
                pair = f"{device} and {topology.devices[j]}"
                links = f"{topology.matrix[i][j]} one way, {topology.matrix[j][i]} the other"
                raise SourceError(f"{MANGLED}: {pair} are {links}")


def _rank(link: str) -> tuple[int, int]:
    """Order of links, slowest first; of NVLinks those of more bonded links are faster."""
    kind = "NV" if link.startswith("NV") else link
    return _WORST_FIRST.index(kind) if kind in _WORST_FIRST else -1, int(link[2:]) if kind == "NV" else 0


def explained(topology: Topology) -> list[str]:
    """What the matrix means, in sentences."""
    said = []
    total = len(topology.gpus) * (len(topology.gpus) - 1) // 2
    for link, count in topology.pairs().items():
        kind = "NV" if link.startswith("NV") else link
        count_of_links = link[2:]
        bonded = f", {count_of_links} bonded" if kind == "NV" and count_of_links != "1" else ""
        said.append(f"{count} of {total} GPU pairs: {link}, {MEANING.get(kind, 'not told')}{bonded}")
    crossing = topology.pairs().get("SYS", 0)
    if topology.looks_virtual():
        said.append("PCIe classes are all PHB, as virtual machines show them: they say nothing about speed here")
    if crossing:
        said.append(f"{crossing} pairs cross sockets: keep tensor parallelism inside groups that do not")
    for size in (2, 4, 8):
        groups = topology.groups(size)
        if groups and size <= len(topology.gpus):
            shown = ", ".join(f"{'+'.join(gpu[3:] for gpu in group)} ({link})" for group, link in groups)
            said.append(f"tensor parallel {size}: {shown}")
    if topology.nics and not topology.looks_virtual():
        said += [f"{gpu}: nearest adapter {', '.join(topology.nearest_nics(gpu))}" for gpu in topology.gpus]
    return said
