"""Other models that share the GPU with the one that trains (`extra_models`).

    reference, teacher, reward   frozen: weights, divided as the trained ones are; `NAME:MODEL` names another model
    critic, value                as large as the trained model, trained with it: weights, gradients, optimizer states
    rollout, rollout:ENGINE      an engine with a budget of its own (training/step/other_models.py)

Under LoRA a reference is the base with its adapters switched off (trl 0.24 trainer/dpo_trainer.py, grpo_trainer.py:
`ref_model = None` for a PEFT model), which takes nothing. A critic's forward pass joins the policy's in transformers'
trainers (trl 0.24 trainer/ppo_trainer.py, PolicyAndValueWrapper), so that both keep their activations until backward;
elsewhere it has a pass of its own. Not counted: what frozen models need for a moment in theirs.

A rollout engine on the card of the policy that it samples from (colocated, as in trl's `vllm_mode="colocate"`).

    awake    gpu_memory_utilization · the card's total, in every moment: vLLM fills its budget when it starts
    asleep   its graphs and workspaces alone while the policy trains; a moment of its own, `rollout`, has the whole
             budget beside the policy's weights, master copy and optimizer states

trl 1.16 generation/vllm_generation.py (colocate: sleeps between generations); vLLM device_allocator/cumem.py: weights
and KV cache leave, everything else stays. Without `rollout_gpu_memory_utilization` an engine is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from vramwise.errors import ScenarioError, clipped, nearest
from vramwise.models import describe
from vramwise.models.autograd.size import Axes
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.result import Node, Phase, Quantity
from vramwise.sources import resolve
from vramwise.training.activations.sizes import step_shape
from vramwise.training.calibration import calibrated
from vramwise.training.components import OTHER_MODELS, Component
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import model_states
from vramwise.training.recipe.heads import with_head
from vramwise.training.recipe.lengths import read_by
from vramwise.training.resolved import ResolvedTrain

FROZEN = ("reference", "teacher", "reward")
TRAINED = ("critic", "value")
ELSEWHERE = ("rollout",)


def role_of(name: str) -> str:
    """What a model of `extra_models` is. Raises `ScenarioError` for an unknown role."""
    role = name.partition(":")[0].strip().lower().removesuffix("_model").removesuffix(" model")
    role = {"ref": "reference"}.get(role, role)
    known = (*FROZEN, *TRAINED, *ELSEWHERE)
    if role not in known:
        hint = ", ".join(nearest(role, known) or known)
        raise ScenarioError("train.extra_models", f'"{clipped(name)}" is no role: did you mean {hint}?')
    return role


def takes_nothing(name: str, train: ResolvedTrain) -> bool:
    """Whether a model of `extra_models` adds no memory here: an engine's own, or adapters switched off."""
    role = role_of(name)
    return role in ELSEWHERE or (role == "reference" and ":" not in name and train.method in ("lora", "qlora"))


@lru_cache(maxsize=256)
def extra_model_bytes(model: Model, train: ResolvedTrain, placement: Placement) -> Mapping[Component, int]:
    """Bytes that stay on a rank for each other model."""
    found: dict[Component, int] = {}
    for name in train.extra_models:
        role = role_of(name)
        if takes_nothing(name, train):
            continue
        _, colon, other = name.partition(":")
        owned = _named(other) if colon else with_head(model, "sequence-classification") if role == "reward" else model
        if role in TRAINED:
            states = model_states(owned, train, placement)
            size = states.weights + states.frozen_weights + states.buffers + states.adapter_weights
            size += states.gradients + states.master + states.optimizer
        else:
            states = model_states(owned, train.replace(method="full", trainable=(), quantization=None), placement)
            size = states.weights + states.buffers
        component = OTHER_MODELS[role]
        found[component] = found.get(component, 0) + size
    return found


@record
class CriticPass:
    """Bytes that the critics keep until backward, and the most of them at once in their own backward pass."""

    kept: int = 0
    peak: int = 0


def critic_pass(model: Model, train: ResolvedTrain, axes: Axes, *, accumulating: bool) -> CriticPass:
    """Activations of the trained models of `extra_models`, each with a head of few classes instead of the output layer.

    One stage holds them whole: where a pipeline cuts the policy, the critic's activations are an upper bound.
    """
    kept = peak = 0
    for name in train.extra_models:
        if role_of(name) not in TRAINED:
            continue
        _, colon, other = name.partition(":")
        owned = with_head(_named(other) if colon else model, "sequence-classification")
        shape = step_shape(owned, train, axes["batch"], read_by(axes), accumulating=accumulating)
        below = 0
        for run in shape.at(axes):
            peak = max(peak, kept + below + max(run.peak.total, run.head_peak.total))
            below += run.activations + run.weight_casts
        kept += below
    return CriticPass(kept, max(peak, kept))


def _named(name: str) -> Model:
    source = resolve(name)
    return describe(source.config, source.id)


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
