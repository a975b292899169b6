"""`nvidia-smi topo -p2p r` (w, n, a, p): which GPUs may reach one another's memory, and why others may not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations

from vramwise.errors import SourceError
from vramwise.hardware.machine.matrix_text import Block, blocks, cells_of

REFUSED = {
    "CNS": "the chipset is not supported",
    "GNS": "the GPU is not supported",
    "TNS": "the topology is not supported",
    "NS": "not supported",
    "DR": "disabled by a driver setting",
    "U": "unknown",
}
"""nvidia-smi's legend for pairs that have no access."""
_STATUS = re.compile(r"X|OK|CNS|GNS|TNS|NS|DR|U")
_ONLY_HERE = frozenset({"OK", *REFUSED})


@dataclass(frozen=True)
class PeerAccess:
    """GPUs in the order of the columns, and the status of each pair (`OK`, `CNS`, …, `X` with itself)."""

    devices: tuple[str, ...]
    matrix: tuple[tuple[str, ...], ...]

    def refused(self) -> dict[str, list[tuple[str, str]]]:
        """Pairs without access in one direction at least, by status."""
        found: dict[str, list[tuple[str, str]]] = {}
        for i, j in combinations(range(len(self.devices)), 2):
            status = next((each for each in (self.matrix[i][j], self.matrix[j][i]) if each != "OK"), None)
            if status is not None:
                found.setdefault(status, []).append((self.devices[i], self.devices[j]))
        return found


def is_peer_access(block: Block) -> bool:
    """Whether a matrix holds access, not links."""
    return any(word in _ONLY_HERE for _, words in block.rows for word in words[: len(block.devices)])


def read_peer_access(text: str) -> PeerAccess:
    """The first matrix of access in the text. Raises SourceError."""
    block = next((block for block in blocks(text) if is_peer_access(block)), None)
    if block is None:
        raise SourceError("no matrix of nvidia-smi topo -p2p here: expected rows such as “GPU0 X OK”")
    return PeerAccess(block.devices, cells_of(block, _STATUS, "nvidia-smi topo -p2p r")[0])


def explained(access: PeerAccess) -> list[str]:
    """What the matrix means, in sentences."""
    total = len(access.devices) * (len(access.devices) - 1) // 2
    refused = access.refused()
    count = sum(map(len, refused.values()))
    if not count:
        return [f"peer access: all {total} GPU pairs" if total else "peer access: one GPU alone"]
    said = [f"peer access: {total - count} of {total} GPU pairs"]
    for status, pairs in refused.items():
        shown = ", ".join(f"{one[3:]}–{other[3:]}" for one, other in pairs[:8]) + (" …" if len(pairs) > 8 else "")
        said.append(f"{len(pairs)} pairs {status}, {REFUSED.get(status, 'unknown')}: {shown}")
    return [*said, "pairs without it copy through the host's memory: NCCL is slower there, custom all-reduces are off"]
