"""One way of running or training a model on a machine: its settings, judged by an estimate of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from vramwise.errors import VramwiseError
from vramwise.models import Model
from vramwise.planner.bounds import Bounds
from vramwise.planner.card_precision import precision_of_the_card
from vramwise.planner.machine import Machine, flags_of
from vramwise.records import record
from vramwise.result import Result, VerdictWord
from vramwise.scenario import Scenario
from vramwise.scenario.definition import table_of


class Estimate(Protocol):
    """`vramwise.estimation.estimate`."""

    def __call__(self, scenario: Mapping[str, object], *, replays: bool = True) -> Result: ...


@record
class Question:
    """A model on a machine, and who answers. `name`: the model as a scenario names it; `bounds`: where it is known what
    it takes on any machine."""

    name: str | Mapping[str, object]
    model: Model
    machine: Machine
    estimate: Estimate
    bounds: Bounds | None = None


@record
class Way:
    """Settings of one task with the answer for them; where they are refused, `refusal` says why.

    `method`: the engine, or full, lora, qlora. `precision`: what the weights are in, as its engine or file calls it.
    """

    task: str
    method: str
    precision: str
    settings: Mapping[str, object]
    machine: Machine
    result: Result | None = None
    refusal: str = ""

    @property
    def word(self) -> VerdictWord:
        verdict = self.result.verdict if self.result is not None else None
        return verdict.word if verdict is not None else "does not fit"

    @property
    def fits(self) -> bool:
        """Whether it fits, or fits tightly."""
        return self.word != "does not fit"

    @property
    def is_sure(self) -> bool:
        return self.word == "fits"

    @property
    def probability(self) -> float:
        verdict = self.result.verdict if self.result is not None else None
        return verdict.probability if verdict is not None else 0.0

    @property
    def needed_bytes(self) -> int | None:
        """Bytes of one card that it needs at least."""
        return int(self.result.needed.expected) if self.result is not None else None

    @property
    def resolved(self) -> Mapping[str, Any]:
        """The task's settings with what was left open filled in."""
        return self.result.scenario[table_of(self.task)] if self.result is not None else self.settings

    @property
    def scenario(self) -> dict[str, object]:
        """What it changes beside the model: task, machine, settings."""
        return {"task": self.task, **self.machine.keys, table_of(self.task): dict(self.settings)}

    def flags(self) -> Iterator[str]:
        """The words of its command behind the model's name."""
        return flags_of({"task": self.task, **self.settings, **self.machine.written})


def tried(question: Question, way: Way, *, replays: bool = True) -> Way:
    """The way with the answer for it, in a precision that its cards compute in."""
    way = replace(way, settings={**way.settings, **_precision(question, way)})
    scenario = {"model": question.name, **way.scenario}
    try:
        return replace(way, result=question.estimate(scenario, replays=replays), refusal="")
    except VramwiseError as problem:
        return replace(way, result=None, refusal=str(problem))


def scenario_of(question: Question, way: Way) -> Scenario:
    """The way's scenario, in a precision that its cards compute in. Raises ScenarioError for a wrong value."""
    way = replace(way, settings={**way.settings, **_precision(question, way)})
    return Scenario.from_dict({"model": question.name, **way.scenario})


def _precision(question: Question, way: Way) -> Mapping[str, object]:
    if way.task != "train":
        return {}
    try:
        return precision_of_the_card(Scenario.from_dict({"model": question.name, **way.scenario}))
    except VramwiseError:
        return {}
