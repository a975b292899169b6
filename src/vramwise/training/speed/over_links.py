"""One layout on other links: NVLink, PCIe alone, and Ethernet, with what of its gathers no computation hides."""

from __future__ import annotations

from vramwise.hardware import Gpu
from vramwise.records import record, replace
from vramwise.training.job import Job
from vramwise.training.speed.links import Links, links_of
from vramwise.training.speed.step_time import EXPOSED, step_time


@record
class OverLink:
    """Seconds of a step where cards are joined so, and those of them in which a card waits for gathers or reductions.

    `slow_down`: how many times as long as on the fastest of the links beside it.
    """

    link: str
    step_time_s: float
    exposed_s: float
    slow_down: float

    def to_dict(self) -> dict[str, object]:
        """Seconds a step by link as JSON-able data, the same in every Python: 3.12 sums floats with less rounding."""
        times = {"step_time_s": self.step_time_s, "exposed_gathers_s": self.exposed_s, "slow_down": self.slow_down}
        return {"link": self.link, **{name: float(f"{value:.12g}") for name, value in times.items()}}


def over_links(job: Job) -> tuple[OverLink, ...]:
    """The job's step on every kind of link, the fastest first; none for a single card or one without known rates."""
    gpu = job.gpu
    if gpu is None or not gpu.has_rates or job.scenario.num_gpus < 2:
        return ()
    found = []
    for name, links in _kinds(gpu, job.scenario.num_gpus, job.scenario.gpus_per_node, job.scenario.network_gbit_s):
        taken = step_time(job, links)
        found.append(OverLink(name, taken.seconds, taken.parts.get(EXPOSED, 0.0), 1.0))
    found.sort(key=lambda one: one.step_time_s)
    return tuple(replace(one, slow_down=one.step_time_s / found[0].step_time_s) for one in found)


def _kinds(gpu: Gpu, num_gpus: int, gpus_per_node: int, network_gbit_s: int | None) -> list[tuple[str, Links]]:
    """NVLink is that of the card, where it has any; within a node the network says nothing.

    Ethernet is that of an ordinary node (links.csv): between the nodes of a job, else between machines of one card.
    """
    own, plain = links_of(gpu, gpus_per_node, network_gbit_s), replace(gpu, nvlink_gb_s=None)
    pcie = replace(links_of(plain, gpus_per_node, network_gbit_s), across=own.across)
    if num_gpus <= gpus_per_node:
        ethernet = links_of(plain, 1, None)
        between = f"Ethernet of {ethernet.network_gbit_s:,.0f} Gbit/s between machines of one card"
        return [*([("NVLink", own)] if gpu.is_linked else []), ("PCIe", pcie), (between, ethernet)]
    network = f"{own.network_gbit_s:,.0f} Gbit/s between nodes"
    kinds = [(f"NVLink, {network}", own)] if gpu.is_linked else []
    kinds.append((f"PCIe, {network}", pcie))
    ethernet = links_of(plain, gpus_per_node, None)
    if ethernet.network_gbit_s != own.network_gbit_s:
        within = "NVLink" if gpu.is_linked else "PCIe"
        slower = f"{within}, Ethernet of {ethernet.network_gbit_s:,.0f} Gbit/s between nodes"
        kinds.append((slower, replace(ethernet, within=own.within)))
    return kinds
