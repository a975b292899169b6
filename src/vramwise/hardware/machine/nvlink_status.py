"""`nvidia-smi nvlink -s`: each GPU's NVLinks, which are up, and their rate."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vramwise.errors import SourceError

_GPU = re.compile(r"\s*GPU (\d{1,4}): (.*?)(?: \(UUID:.*)?$")
_LINK = re.compile(r"\s+Link (\d{1,3}): (?:(\d{1,6}(?:\.\d{1,6})?) GB/s|<?(inactive|inActive)>?)\s*$")


@dataclass(frozen=True)
class NvlinkStatus:
    """The links of one GPU: GB/s in one direction by link number, None for a link that is down."""

    index: int
    name: str
    links: dict[int, float | None]

    @property
    def up(self) -> int:
        """Number of links that are up; one that shows 0 GB/s is not."""
        return sum(bool(rate) for rate in self.links.values())

    @property
    def gb_s(self) -> float:
        """GB/s of all links together in one direction, as the tool states them (before protocol overhead)."""
        return sum(rate or 0.0 for rate in self.links.values())


def read_nvlink_status(text: str) -> list[NvlinkStatus]:
    """Every GPU with its links. Raises SourceError."""
    found: list[NvlinkStatus] = []
    for line in text.splitlines():
        if gpu := _GPU.match(line):
            found.append(NvlinkStatus(int(gpu.group(1)), gpu.group(2).strip(), {}))
        elif found and (link := _LINK.match(line)):
            found[-1].links[int(link.group(1))] = float(link.group(2)) if link.group(2) else None
    found = [each for each in found if each.links]
    if not found:
        raise SourceError("no report of nvidia-smi nvlink -s here: expected lines such as “Link 0: 26.562 GB/s”")
    return found


def explained(found: list[NvlinkStatus]) -> list[str]:
    """Links up, rate, and what differs between GPUs of one machine."""
    said = []
    most = max(each.up for each in found)
    for each in found:
        down = [number for number, rate in each.links.items() if not rate]
        text = f"GPU{each.index}: {each.up} of {len(each.links)} NVLinks up, {each.gb_s:,.1f} GB/s each way"
        if down and each.up < most:
            text += f"; {most} on another GPU: check the bridges (down: {', '.join(map(str, down))})"
        said.append(text)
    return said
