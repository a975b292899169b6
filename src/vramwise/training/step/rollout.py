"""A rollout engine on the card of the policy that it samples from (colocated, as in trl's `vllm_mode="colocate"`).

    awake    gpu_memory_utilization · the card's total, in every moment: vLLM fills its budget when it starts
    asleep   its graphs and workspaces alone while the policy trains; a moment of its own, `rollout`, has the whole
             budget beside the policy's weights, master copy and optimizer states

trl 1.16 generation/vllm_generation.py (colocate: sleeps between generations); vLLM device_allocator/cumem.py: weights
and KV cache leave, everything else stays. Without `rollout_gpu_memory_utilization` an engine is not counted.
"""

from __future__ import annotations

from vramwise.result import Node, Phase, Quantity
from vramwise.training.calibration import calibrated
from vramwise.training.components import OTHER_MODELS, Component
from vramwise.training.resolved import ResolvedTrain

NAME = "rollout engine"
_STAY = (
    Component.WEIGHTS,
    Component.BUFFERS,
    Component.ADAPTERS,
    Component.MASTER_WEIGHTS,
    Component.OPTIMIZER_STATES,
    *OTHER_MODELS.values(),
)


def is_counted(train: ResolvedTrain, card_bytes: int | None) -> bool:
    """Whether the engine's share is known, in bytes."""
    return _awake(train, card_bytes) is not None


def during_training(train: ResolvedTrain, card_bytes: int | None) -> list[Node]:
    """The engine's bytes while the policy trains; none where they are not known."""
    awake = _awake(train, card_bytes)
    if awake is None:
        return []
    if not train.rollout_sleep:
        return [awake]
    left = calibrated("rollout_asleep")
    ends = int(left.low), int(left.high)
    return [Node(NAME, int(left.expected), "calibrated", *ends, formula="asleep", source=left.source)]


def _awake(train: ResolvedTrain, card_bytes: int | None) -> Node | None:
    share = train.rollout_gpu_memory_utilization
    if share is None or card_bytes is None:
        return None
    return Node(
        NAME, round(share * card_bytes), "derived", formula=f"{share:g} of the card",
        source="vLLM v1/worker/utils.py request_memory: gpu_memory_utilization · total memory",
    )  # fmt: skip


def generation(train: ResolvedTrain, card_bytes: int | None, step: Phase, outside: tuple[Node, ...]) -> Phase | None:
    """The moment in which an engine that sleeps between generations is awake; None for every other engine.

    `step` is a moment with optimizer states, whose terms for what stays on the card are those of this one.
    """
    awake = _awake(train, card_bytes)
    if awake is None or not train.rollout_sleep:
        return None
    stays = (child for child in step.components.children if child.name in _STAY)
    others = (node for node in outside if node.name != NAME)
    return Phase("rollout", Node.group("rollout", (*stays, *others, awake)))


def at_least(quantity: Quantity, generating: Phase | None) -> Quantity:
    """A counter of the whole card, which sees the engine awake as well."""
    if generating is None:
        return quantity
    tree = generating.components
    return Quantity(max(quantity.low, tree.low), max(quantity.expected, tree.bytes), max(quantity.high, tree.high))
