"""The card, or the cards, that somebody has: what a scenario says of them beside its model and task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vramwise.errors import UsageError
from vramwise.estimation import on_this_machine
from vramwise.hardware import Gpu, find_gpu
from vramwise.hardware.room import room_of, rooms_of
from vramwise.records import record
from vramwise.scenario import Scenario
from vramwise.scenario.definition import DEFAULTS, KINDS, TABLES

_NOT_OF_THE_MACHINE = frozenset({"model", "task", *TABLES})


@record
class Machine:
    """`keys`: of a scenario, as an answer takes them; `written`: the same as they were asked for, for commands.

    `usable_bytes` is one card's, of unequal ones the smallest's, `room_bytes` all cards'. `gpu` is None where cards are
    unequal, or their memory alone was given.
    """

    keys: Mapping[str, object]
    written: Mapping[str, object]
    gpu: Gpu | None
    name: str
    num_gpus: int
    total_bytes: int
    usable_bytes: int
    room_bytes: int
    notes: tuple[str, ...] = ()
    bandwidths_gb_s: tuple[float, ...] = ()
    """Of a card, or of each of unequal ones; empty where one's is not known."""

    def flags(self) -> Iterator[str]:
        """The words that name it on a command line."""
        return flags_of(self.written)

    @property
    def gpu_id(self) -> str | None:
        return self.gpu.id if self.gpu is not None else None

    @property
    def runs_cuda_code(self) -> bool:
        """Whether engines that are written for CUDA run; a card that is not named is taken for one that does."""
        return self.gpu is None or self.gpu.runs_cuda_code


def flags_of(settings: Mapping[str, object]) -> Iterator[str]:
    """Settings as words of a command line."""
    for key, value in settings.items():
        name = key.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{name}" if value else f"--no-{name}"
        else:
            yield from (f"--{name}", str(value))


def machine_keys() -> frozenset[str]:
    """The keys of a scenario that say what the machine is."""
    return frozenset(KINDS[Scenario]) - _NOT_OF_THE_MACHINE


def machine_of(**written: object) -> Machine:
    """The machine of a scenario's keys (`gpu`, `num_gpus`, `gpu_total_bytes`, …).

    Raises ScenarioError for a wrong value, UnknownNameError for an unknown card, UsageError where nothing says how
    much memory there is.
    """
    asked = {key: value for key, value in written.items() if value is not None}
    if asked.get("num_gpus") == 0:
        raise UsageError("num_gpus: expected at least 1, got 0")
    scenario = Scenario.from_dict({"model": "-", "task": "load", **asked})
    scenario = on_this_machine(scenario)
    match = find_gpu(scenario.gpu) if scenario.gpu is not None else None
    gpu = match.gpu if match is not None else None
    unequal = rooms_of(scenario)
    room = room_of(scenario, gpu) if not unequal else min(unequal, key=lambda room: room.usable_bytes)
    if room is None:
        many = f"num_gpus: {scenario.num_gpus} of which card?"
        what = f"{gpu.name}: its memory is not known:" if gpu is not None else many
        raise UsageError(f"{what} give --gpu CARD or --gpu-total-bytes SIZE")
    values = {key: getattr(scenario, key) for key in sorted(machine_keys())}
    keys = {key: value for key, value in values.items() if value != DEFAULTS[Scenario][key]}
    if gpu is not None:
        keys["gpu"] = gpu.id
    every = sum(one.usable_bytes for one in unequal) if unequal else room.usable_bytes * scenario.num_gpus
    notes = [*scenario.notes, match.note if match is not None else None, room.limits()]
    if gpu is not None and scenario.gpu_total_bytes is None:
        notes.append(gpu.memory_note)
    said = tuple(note for note in notes if note)
    cards = [find_gpu(one).gpu for one in scenario.gpus] if unequal and scenario.gpus else []
    name = " + ".join(one.name for one in cards)
    found = [one.bandwidth_gb_s for one in cards or ([gpu] if gpu is not None else [])]
    bandwidths = tuple(one for one in found if one is not None)
    return Machine(
        keys, asked, gpu, name or (gpu.name if gpu is not None else ""), scenario.num_gpus, room.total_bytes,
        room.usable_bytes, every, said, bandwidths if len(bandwidths) == len(found) else (),
    )  # fmt: skip
