"""The room on a card: its total, what of it is free at the start, and what must stay free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramwise.records import record, replace
from vramwise.result import Capacity
from vramwise.scenario import Scenario
from vramwise.units import format_bytes

if TYPE_CHECKING:
    from vramwise.hardware.gpu import Gpu


@record
class Room:
    """One card as a program finds it.

    `total_bytes` as the driver says it, `seen_bytes` the total that a process sees, which engines take shares of,
    `free_bytes` at the start, `reserve_bytes` what must stay free at the end.
    """

    gpu: str
    total_bytes: int
    seen_bytes: int
    free_bytes: int
    reserve_bytes: int

    @property
    def held_bytes(self) -> int:
        """What other programs hold."""
        return self.seen_bytes - self.free_bytes

    @property
    def usable_bytes(self) -> int:
        """What a program may fill."""
        return max(0, self.free_bytes - self.reserve_bytes)

    @property
    def capacity(self) -> Capacity:
        return Capacity(self.gpu, self.total_bytes, self.usable_bytes)

    def limits(self) -> str | None:
        """Why less than the card is usable, in words; None where all of it is."""
        said = []
        if self.held_bytes:
            said.append(f"{format_bytes(self.held_bytes)} are held by others (gpu_free_bytes)")
        if self.reserve_bytes:
            said.append(f"{format_bytes(self.reserve_bytes)} must stay free (reserve_bytes)")
        if not said:
            return None
        left = f"{format_bytes(self.usable_bytes)} are usable"
        return f"{left} of the card's {format_bytes(self.seen_bytes)}: {' and '.join(said)}"


def room_of(scenario: Scenario, gpu: Gpu | None) -> Room | None:
    """The room on one card; None when neither its memory nor its kind is known, or on the CPU alone."""
    if scenario.num_gpus == 0:
        return None
    total = seen = scenario.gpu_total_bytes
    if seen is None and gpu is not None and gpu.usable_bytes is not None:
        total, seen = gpu.memory_total_bytes or gpu.usable_bytes, gpu.usable_bytes
    if seen is None:
        total = seen = scenario.gpu_free_bytes
    if seen is None:
        return None
    free = seen if scenario.gpu_free_bytes is None else min(scenario.gpu_free_bytes, seen)
    name = gpu.id if gpu is not None else ""
    return Room(name, total or seen, seen, free, reserved_bytes(scenario.reserve_bytes, seen))


def rooms_of(scenario: Scenario) -> tuple[Room, ...]:
    """The room on each of unequal cards (`gpus`), empty for equal ones.

    `gpu_total_bytes` and `gpu_free_bytes` are those of the smallest: others hold as much of each.
    """
    from vramwise.hardware.lookup import find_gpu

    if not scenario.gpus or scenario.num_gpus != len(scenario.gpus):
        return ()
    cards = [find_gpu(name).gpu for name in scenario.gpus]
    alone = scenario.replace(gpus=None, gpu_total_bytes=None, gpu_free_bytes=None)
    rooms = [room for card in cards if (room := room_of(alone, card)) is not None]
    if len(rooms) < len(cards):
        return ()
    least = room_of(scenario, min(cards, key=lambda card: card.usable_bytes or 0))
    held = least.held_bytes if least is not None else 0
    return tuple(replace(room, free_bytes=max(0, room.free_bytes - held)) for room in rooms)


def reserved_bytes(asked: int | str | None, card_bytes: int) -> int:
    """What `reserve_bytes` asks for, where it may be a share of the card such as `10%`."""
    if isinstance(asked, str):
        return round(card_bytes * float(asked.removesuffix("%")) / 100)
    return asked or 0


def capacity_of(scenario: Scenario, gpu: Gpu | None) -> Capacity | None:
    """What one card offers to a program."""
    room = room_of(scenario, gpu)
    return None if room is None else room.capacity
