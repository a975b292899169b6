"""The room on a card: its total, what of it is free at the start, and what must stay free.

The card of an answer: which it is, what is assumed of it, and what a verdict says where others use it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramwise.engines import engine_named
from vramwise.records import record, replace
from vramwise.result import Capacity, Quantity, Result
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
        """Bytes that other programs hold: seen − free."""
        return self.seen_bytes - self.free_bytes

    @property
    def usable_bytes(self) -> int:
        """Bytes that a program may fill: free − reserved, not below 0."""
        return max(0, self.free_bytes - self.reserve_bytes)

    @property
    def capacity(self) -> Capacity:
        """The same as a result says it."""
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
    """The room on one card, in bytes: what the scenario states of it, else what the driver reports of its kind.

    None when neither its memory nor its kind is known, or on the CPU alone.
    """
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
    """Bytes that `reserve_bytes` asks for, which may be a share of the card such as `10%`; 0 for None."""
    if isinstance(asked, str):
        return round(card_bytes * float(asked.removesuffix("%")) / 100)
    return asked or 0


def capacity_of(scenario: Scenario, gpu: Gpu | None) -> Capacity | None:
    """What one card offers to a program, in bytes; None where `room_of` knows nothing of it."""
    room = room_of(scenario, gpu)
    return None if room is None else room.capacity


def card_of(scenario: Scenario) -> tuple[Gpu | None, str | None]:
    """The card that a scenario names, of unequal ones the smallest, and what is to be said of it.

    Raises UnknownNameError for an unknown one.
    """
    if scenario.gpus:
        divides = scenario.task == "serve" and engine_named(scenario.serve.engine).divides_by_room
        return _smallest(scenario.gpus, divides=divides or scenario.task == "generate")
    if scenario.gpu is None:
        return None, None
    from vramwise.hardware.lookup import find_gpu

    match = find_gpu(scenario.gpu)
    return match.gpu, match.note


def _smallest(names: tuple[str, ...], *, divides: bool) -> tuple[Gpu, str]:
    """Of unequal cards the smallest; `divides`: the program puts as much on each as it has room for."""
    from vramwise.hardware.lookup import find_gpu

    cards = [find_gpu(name).gpu for name in names]
    least = min(cards, key=lambda card: card.usable_bytes or 0)
    listed = ", ".join(card.name for card in cards)
    if divides:
        return least, f"unequal cards ({listed}): each holds the part of the model that its own room allows"
    return least, f"unequal cards ({listed}): every one holds an equal part, so the smallest decides, {least.name}"


def beside_others(result: Result, room: Room | None) -> Result:
    """The verdict of a card that others use too says why less of it is usable, and whether enough of it stays free."""
    limits = room.limits() if room is not None else None
    if room is None or limits is None or result.verdict is None:
        return result
    from vramwise.verdict import LateReasons, verdict_of

    judged, filled = result.verdict, result.quantities.get("nvidia_smi")
    reasons = LateReasons([limits], lambda: judged.reasons)
    if not judged.fits or filled is None or filled.expected <= room.usable_bytes or not room.reserve_bytes:
        return replace(result, verdict=replace(judged, reasons=reasons))
    if filled == result.quantities.get("total_needed"):  # it was judged; llama.cpp's is the sum over its cards
        return replace(result, verdict=replace(judged, reasons=reasons))
    left, asked = (format_bytes(size) for size in (max(0, room.free_bytes - int(filled.expected)), room.reserve_bytes))
    kept = f"the process fills {format_bytes(int(filled.expected))}: of {asked} that must stay free {left} are left"
    verdict = verdict_of(filled, room.usable_bytes, LateReasons([kept, limits], lambda: judged.reasons))
    quantities = {**result.quantities, "total_needed": filled}
    if "oom" in quantities:
        quantities["oom"] = Quantity.exact(not verdict.fits)
    if "serve" in result.scenario:  # its share stays as large however short and few requests are
        quantities |= {name: Quantity.exact(0) for name in ("max_batch", "max_seq") if name in quantities}
    return replace(result, verdict=verdict, quantities=quantities)


_RUNTIMES = {
    "Apple": "Metal", "Google": "PyTorch/XLA", "AWS": "Neuron", "Huawei": "CANN", "Intel": "oneAPI or SynapseAI",
}  # fmt: skip


def not_of_cuda(gpu: Gpu) -> str:
    """What the numbers are of a card that runs other code."""
    return (
        f"{gpu.name} does not run CUDA code: the numbers are those of the CUDA code, without a CUDA context; what "
        f"{_RUNTIMES.get(gpu.vendor, 'its runtime')} takes beside them, and which temporaries it does without, is "
        "not known"
    )


def device_notes(scenario: Scenario, gpu: Gpu | None) -> Iterator[str]:
    """What is assumed of a device that shares memory, does not run CUDA code, or is not named."""
    if gpu is not None and gpu.memory_note is not None and scenario.gpu_total_bytes is None and scenario.num_gpus:
        yield gpu.memory_note
    own = engine_named(scenario.serve.engine).vendor if scenario.task in ("serve", "load") else ""
    if gpu is not None and not gpu.runs_cuda_code and gpu.vendor != own and scenario.num_gpus:
        yield not_of_cuda(gpu)
    train = scenario.train
    if gpu is None and scenario.task == "train" and train.precision.startswith("fp8") and train.fp8_recipe is None:
        yield "no card is named: fp8 weights are kept as on Hopper (compute capability 9.0); --gpu says which card"
