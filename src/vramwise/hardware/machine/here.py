"""`gpu: here`: this machine's card in the place of a name, with what of it is free now and who holds the rest.

The resolved scenario names the card, its total and its free bytes, so that the same question can be asked elsewhere.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence

from vramwise.errors import ScenarioError, UnknownNameError, clipped
from vramwise.hardware.lookup import GpuMatch, find_installed_gpu
from vramwise.hardware.machine.facts import DriverFacts, GpuFacts
from vramwise.hardware.machine.host import this_host
from vramwise.hardware.memory import seen_by_processes
from vramwise.records import record
from vramwise.scenario import Scenario
from vramwise.scenario.cards import card_here
from vramwise.units import MIB, format_bytes

HERE = "here"
DRIVERS = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/dev/nvmap")
"""What a kernel shows that has a GPU's driver: NVIDIA's, AMD's, WSL's, a Jetson's."""
_CUDA, _HIP = "CUDA_VISIBLE_DEVICES", ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_MOST_PROCESSES = 4
_WORTH_SAYING = 64 * MIB


@record
class Card:
    """One card as the catalog and its driver know it; `total_bytes` is what a process sees, None as the card's own."""

    gpu: str | None
    name: str
    total_bytes: int | None
    free_bytes: int | None
    facts: GpuFacts
    note: str | None = None


def has_driver() -> bool:
    """Whether this machine may have a GPU: nothing is started or imported to find out."""
    if sys.platform == "darwin":
        return os.uname().machine == "arm64"
    if sys.platform == "win32":
        return os.path.exists(os.path.join(os.environ.get("SYSTEMROOT", r"C:\Windows"), "System32", "nvml.dll"))
    return any(map(os.path.exists, DRIVERS))


def located(scenario: Scenario) -> Scenario:
    """The scenario with the cards of this machine where it asks for them. Raises ScenarioError where there are none."""
    which = card_here(scenario.gpu)
    if which is None:
        return scenario
    driver, cards = cards_here(which)
    if not cards:
        raise ScenarioError("gpu", no_card(driver))
    count = scenario.num_gpus if "num_gpus" in scenario.explicit or scenario.num_gpus > 1 else 1
    if count > len(cards):
        raise ScenarioError("num_gpus", f"{count}: this machine offers {len(cards)} ({_visible_by() or 'all it has'})")
    used = cards[: max(count, 1)]
    fullest = min(used, key=_room)
    names = [card.gpu for card in used]
    unequal = None not in names and len(set(names)) > 1
    said = [_said(card) for card in used] + _freer(cards, used, which)
    if any(card.gpu is None for card in used):
        said.append(f"{fullest.name} is no card that is known here: only its memory is")
    changes: dict[str, object] = {
        "gpu": None if unequal else fullest.gpu,
        "gpus": tuple(filter(None, names)) if unequal else None,
        "gpu_total_bytes": scenario.gpu_total_bytes or fullest.total_bytes,
        "gpu_free_bytes": scenario.gpu_free_bytes or fullest.free_bytes,
        "driver": scenario.driver or driver.driver,
    }
    notes = (*scenario.notes, *said)
    return scenario.replace(**changes, notes=tuple(dict.fromkeys(notes)))


def cards_here(which: str = "") -> tuple[DriverFacts, list[Card]]:
    """What the driver says, and the cards that a process here may use: those that the environment shows, or one."""
    from vramwise.hardware.machine.nvml import this_machine

    driver = this_machine() or DriverFacts("")
    units = [unit for gpu in driver.gpus for unit in (gpu.slices if gpu.mig == "enabled" else (gpu,))]
    if which:
        return driver, [_card(unit) for unit in _chosen(units, driver.gpus, which)]
    shown = _visible(driver)
    if shown is not None:
        units = [unit for name in shown for unit in _chosen(units, driver.gpus, name, strict=False)]
    return driver, [_card(unit) for unit in units]


def no_card(driver: DriverFacts) -> str:
    """Why there is none."""
    if driver.gpus:
        hidden = _visible_by()
        if hidden:
            return f"here: {hidden} shows none of this machine's {len(driver.gpus)} GPUs: name a card instead"
        return "here: this GPU is in MIG mode and has no slice yet (nvidia-smi mig -cgi makes one): name a card instead"
    why = f" ({driver.notes[0]})" if driver.notes else ""
    return (
        f"here: no GPU answers on this machine{why}, neither NVML (pip install vramwise[gpu]) nor nvidia-smi, amd-smi "
        "or rocm-smi: name a card, as in --gpu 4090"
    )


def _card(facts: GpuFacts) -> Card:
    match = _known(facts.name, facts.total_bytes) or _known(facts.name.partition(",")[0], facts.total_bytes)
    if match is None:
        return Card(None, facts.name, facts.total_bytes, facts.free_bytes, facts)
    gpu, total, free, kept = match.gpu, facts.total_bytes, facts.free_bytes, facts.reserved_bytes
    if (
        gpu.unified_memory
    ):  # a process may take a part of it, which the card's row tells; drivers do not tell what is free
        total = total - kept if total is not None and kept is not None else None
        free = this_host().memory_available_bytes if free is None else free
    elif total is not None and gpu.vendor == "NVIDIA" and "MIG" not in facts.name:
        total = total - kept if kept is not None else seen_by_processes(total)
    return Card(gpu.id, gpu.name, total, free, facts, match.note)


def _known(name: str, total_bytes: int | None) -> GpuMatch | None:
    try:
        return find_installed_gpu(name, total_bytes)
    except UnknownNameError:
        return None


def _room(card: Card) -> int:
    known = [size for size in (card.total_bytes, card.free_bytes) if size is not None]
    return min(known, default=0)


def _said(card: Card) -> str:
    """The card, what is free, and who holds the rest."""
    facts = card.facts
    if card.free_bytes is None:
        return f"GPU {facts.index} here: {card.name}; its driver does not say what is free"
    total = card.total_bytes if card.total_bytes is not None else facts.total_bytes
    of = f" of {format_bytes(total)}" if total is not None else ""
    text = f"GPU {facts.index} here: {card.name}, {format_bytes(card.free_bytes)}{of} free now"
    held = 0 if total is None else total - card.free_bytes
    return f"{text}; {_holders(facts, held)}" if held >= _WORTH_SAYING or facts.processes else text


def _holders(facts: GpuFacts, held: int) -> str:
    known = sorted((one for one in facts.processes if one.used_bytes), key=lambda one: -(one.used_bytes or 0))
    said = [f"{_program(one.name)} (pid {one.pid}) {format_bytes(one.used_bytes or 0)}" for one in known]
    if len(said) > _MOST_PROCESSES:
        rest = sum(one.used_bytes or 0 for one in known[_MOST_PROCESSES:])
        said = [*said[:_MOST_PROCESSES], f"{len(known) - _MOST_PROCESSES} more processes {format_bytes(rest)}"]
    untold = [one for one in facts.processes if not one.used_bytes]
    left = held - sum(one.used_bytes or 0 for one in known)
    if left >= _WORTH_SAYING and not untold:
        said.append(f"{format_bytes(left)} by nobody that the driver names")
    elif untold:
        who = ", ".join(f"{_program(one.name)} (pid {one.pid})" for one in untold[:_MOST_PROCESSES])
        said.append(f"{who}: how much, the driver does not tell")
    return f"held by {', '.join(said)}" if said else f"{format_bytes(held)} are held"


def _program(name: str) -> str:
    return clipped(re.split(r"[\\/]", name.strip())[-1] or "a process", 40)


def _freer(cards: Sequence[Card], used: Sequence[Card], which: str) -> list[str]:
    """A card beside those used that has clearly more room."""
    others = [card for card in cards if card not in used and card.free_bytes is not None]
    if which or len(used) > 1 or not others:
        return []
    best = max(others, key=_room)
    if _room(best) < _room(used[0]) * 1.05:
        return []
    return [
        f"GPU {best.facts.index} has {format_bytes(_room(best))} free: --gpu here:{best.facts.index}, and "
        f"{_CUDA}={best.facts.index} for the program"
    ]


def _visible_by() -> str | None:
    return next((f"{name}={clipped(os.environ[name])}" for name in (_CUDA, *_HIP) if name in os.environ), None)


def _visible(driver: DriverFacts) -> list[str] | None:
    """The names that the environment shows to a process, None where it hides nothing."""
    names = (*_HIP, _CUDA) if driver.source in ("amd-smi", "rocm-smi") else (_CUDA,)
    given = next((os.environ[name] for name in names if name in os.environ), None)
    if given is None or (given.strip().lower() == "all"):
        return None
    shown = []
    for name in (part.strip() for part in given.split(",")):
        if not name or name == "-1" or name.lower() in ("nodevfiles", "void", "none"):
            break  # CUDA stops at the first name that it does not know
        shown.append(name)
    return shown


def _chosen(
    units: Iterable[GpuFacts], gpus: Sequence[GpuFacts], which: str, *, strict: bool = True
) -> list[GpuFacts]:  # fmt: skip
    """The card or slice of an index or UUID (its beginning is enough). Raises ScenarioError where none has it."""
    units = list(units)
    if which.isdigit():
        found = [unit for unit in units if unit.index == int(which)][:1]
    else:
        by_name = which.lower()
        found = [unit for unit in units if (unit.uuid or "").lower().startswith(by_name)][:1]
        if not found:  # a card's own UUID stands for its first slice
            parents = [gpu.index for gpu in gpus if (gpu.uuid or "").lower().startswith(by_name)]
            found = [unit for unit in units if unit.index in parents][:1]
    if not found and strict:
        there = ", ".join(str(unit.index) for unit in units) or "none"
        raise ScenarioError("gpu", f'here: no GPU "{clipped(which)}" on this machine (its indices: {there})')
    return found
