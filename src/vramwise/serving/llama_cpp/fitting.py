"""What would fit: the largest context, the most layers on the GPU, the fewest layers with experts on the host.

Each answer is a search over full estimates, as llama.cpp's --fit reserves real buffers (common/fit.cpp); `needed`
gives the bytes of the fullest device of a plan, `needs` those of each device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from vramwise.largest import largest_within
from vramwise.models import Model
from vramwise.models.operations.experts import ExpertMlps
from vramwise.result import Quantity
from vramwise.serving.llama_cpp.settings import PADDING, Plan

Needed = Callable[[Plan], int]
DeviceNeeds = Callable[[Plan], Sequence[int]]
AtContext = Callable[[Plan, int], Plan]
LEAST_CONTEXT = 4096  # --fit never goes below (common/fit.cpp)


def levelled(needs: DeviceNeeds, rooms: Sequence[int]) -> DeviceNeeds:
    """The same as if every device had the room of the roomiest: what one has less counts as needed there."""
    if not rooms:
        return needs
    most = max(rooms)

    def of_equals(plan: Plan) -> list[int]:
        each = needs(plan)
        return (
            [need + most - room for need, room in zip(each, rooms, strict=True)] if len(each) == len(rooms) else [*each]
        )

    return of_equals


def fullest_device(each: Sequence[Quantity], rooms: Sequence[int]) -> int:
    """The device that has the least room left, of equal ones the one that needs most."""
    level = rooms if len(rooms) == len(each) else [0] * len(each)
    return max(range(len(each)), key=lambda device: each[device].expected - level[device])


def worst(needs: DeviceNeeds) -> Needed:
    """The bytes of a plan's fullest device."""
    return lambda plan: max(needs(plan))


def with_context(plan: Plan, n_ctx: int) -> Plan:
    """The plan with another context."""
    return replace(plan, n_ctx=n_ctx, settings=plan.settings.replace(n_ctx=n_ctx))


def with_layers(plan: Plan, layers: int) -> Plan:
    """The plan with fewer layers on the GPU."""
    return replace(plan, gpu_layers=layers, settings=plan.settings.replace(n_gpu_layers=layers))


def with_host_experts(plan: Plan, layers: int) -> Plan:
    """The plan with the experts of the first `layers` layers on the host."""
    return replace(plan, settings=plan.settings.replace(n_cpu_moe=layers))


def with_split(plan: Plan, shares: Sequence[int]) -> Plan:
    """The plan with other shares of the layers by device."""
    split = tuple(float(share) for share in shares)
    return replace(plan, shares=split, settings=plan.settings.replace(tensor_split=split))


def fitting_split(plan: Plan, room: int, needs: DeviceNeeds) -> tuple[int, ...]:
    """Layers by device, the output counted as one, so that no device needs more than `room`; empty for none.

    Devices are filled from the last, which holds the output, to the first, as --fit fills them.
    """
    slots = min(plan.gpu_layers, plan.num_layers + 1)
    counts = [0] * plan.devices
    for device in reversed(range(1, plan.devices)):
        left = slots - sum(counts)
        counts[device] = largest_within(partial(_part_needs, plan, tuple(counts), device, left, needs), room, left)
    counts[0] = slots - sum(counts)
    if not all(need <= room for need in needs(with_split(plan, counts))):
        return ()
    return tuple(counts)


def _part_needs(plan: Plan, counts: Sequence[int], device: int, left: int, needs: DeviceNeeds, layers: int) -> int:
    """The bytes of `device` with so many layers, while the first device takes what is left."""
    trial = list(counts)
    trial[device] = layers
    trial[0] += left - layers
    return needs(with_split(plan, trial))[device]


def largest_context(
    plan: Plan, room: int, needed: Needed, least: int = PADDING, at_context: AtContext = with_context
) -> int:
    """Cells of the largest context, in steps of 256 and `least` at the least, with which the plan needs no more than
    `room`; 0 for none. `at_context`: the plan with another context, and whatever is chosen by that."""
    most, first = plan.n_ctx // PADDING, -(-least // PADDING)
    if first > most:
        return 0
    at_first = needed(at_context(plan, first * PADDING))
    if at_first > room:
        return 0
    return PADDING * largest_within(
        lambda n: needed(at_context(plan, n * PADDING)), room, most, known=(first, at_first)
    )


def most_layers(plan: Plan, room: int, needed: Needed) -> int:
    """The most layers on the GPU that need no more than `room`; 0 for none."""
    most = min(plan.gpu_layers, plan.num_layers + 1)
    return largest_within(lambda n: needed(with_layers(plan, n)), room, most)


def fewest_host_experts(model: Model, plan: Plan, room: int, needed: Needed) -> int:
    """The fewest layers whose experts go to the host so that the rest fits; 0 where that does not help."""
    if plan.experts_on_host or not model.has(ExpertMlps):
        return 0
    layers = plan.num_layers
    kept = largest_within(lambda n: needed(with_host_experts(plan, layers - n)), room, layers)
    return layers - kept if kept or needed(with_host_experts(plan, layers)) <= room else 0
