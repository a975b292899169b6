"""One moment of a step, and the moments with critics' activations in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vramwise.frameworks import framework_of
from vramwise.records import record
from vramwise.training.components import Component
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.extra_models import CriticPass

_OF_ONE_PASS = frozenset({Component.ACTIVATIONS, Component.WEIGHT_CASTS, Component.LOGITS_AND_LOSS})


@record
class Moment:
    """One moment: bytes by component, and the operation at which it is reached."""

    name: str
    parts: Mapping[Component, int]
    operation: str = ""
    layer: int | None = None

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    def of(self, component: Component) -> int:
        """Bytes of one component."""
        return self.parts.get(component, 0)


def with_critics(moments: list[Moment], critics: CriticPass, train: ResolvedTrain) -> list[Moment]:
    """The moments with the critics' activations: beside the policy's in transformers' trainers, else after them."""
    joined = framework_of(train).trainer
    beside = ("forward", "loss", "forward return", "forward end", "backward: head", "backward: layers", "first step")
    found = []
    for moment in moments:
        if joined and moment.name in beside:
            moment = replace(moment, parts={**moment.parts, Component.CRITIC_ACTIVATIONS: critics.kept})
        found.append(moment)
        if moment.name == "backward: layers":
            alone = next(m for m in moments if m.name == ("backward end" if joined else "forward end"))
            rest = {name: size for name, size in alone.parts.items() if joined or name not in _OF_ONE_PASS}
            found.append(Moment("backward: critic", rest | {Component.CRITIC_ACTIVATIONS: critics.peak}))
    return found
