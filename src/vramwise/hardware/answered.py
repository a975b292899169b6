"""The card of an answer: which it is, what is assumed of it, and what a verdict says where others use it too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from vramwise.engines import engine_named
from vramwise.hardware.room import Room
from vramwise.result import Quantity, Result
from vramwise.scenario import Scenario
from vramwise.units import format_bytes

if TYPE_CHECKING:
    from vramwise.hardware.gpu import Gpu


def card_of(scenario: Scenario) -> tuple[Gpu | None, str | None]:
    """The card that a scenario names, of unequal ones the smallest, and what is to be said of it.

    Raises UnknownNameError for an unknown one.
    """
    if scenario.gpus:
        return _smallest(
            scenario.gpus, divides=scenario.task == "serve" and engine_named(scenario.serve.engine).divides_by_room
        )
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


def device_notes(scenario: Scenario, gpu: Gpu | None) -> Iterator[str]:
    """What is assumed of a device that shares memory, does not run CUDA code, or is not named."""
    if gpu is not None and gpu.memory_note is not None and scenario.gpu_total_bytes is None and scenario.num_gpus:
        yield gpu.memory_note
    own = engine_named(scenario.serve.engine).vendor if scenario.task in ("serve", "load") else ""
    if gpu is not None and not gpu.runs_cuda_code and gpu.vendor != own and scenario.num_gpus:
        yield (
            f"{gpu.name} does not run CUDA code: the numbers are those of the CUDA code, without a CUDA context; what "
            f"{_RUNTIMES.get(gpu.vendor, 'its runtime')} takes beside them, and which temporaries it does without, is "
            "not known"
        )
    train = scenario.train
    if gpu is None and scenario.task == "train" and train.precision.startswith("fp8") and train.fp8_recipe is None:
        yield "no card is named: fp8 weights are kept as on Hopper (compute capability 9.0); --gpu says which card"
