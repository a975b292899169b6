"""A change of a scenario: other values, what they cost, and how much they can save at most."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from vramwise.errors import UnknownNameError
from vramwise.hardware import find_gpu
from vramwise.records import record
from vramwise.result import Node, Result
from vramwise.scenario import Scenario, TrainSettings
from vramwise.scenario.definition import KINDS, TABLES, table_of


class Cost(IntEnum):
    """What a change asks of a person, mildest first."""

    NOTHING = 0
    A_PACKAGE = 1
    TIME = 2
    PRECISION = 3
    SMALLER_STEPS = 4
    ANOTHER_OPTIMIZER = 5
    SHORTER = 6
    ANOTHER_METHOD = 7
    HOST_MEMORY = 8
    MORE_GPUS = 9
    ANOTHER_ENGINE = 10


@record
class Change:
    """Values by key of the scenario or of its task's table, and how a person reads them.

    `saves_at_most`: bytes below which the saving stays whatever it is, where that is known. Of one `family`, whose
    changes come mildest first, one that fits is enough. `fresh`: the other keys of the task's table go back to their
    defaults.
    """

    words: str
    values: Mapping[str, object]
    cost: str
    rank: Cost
    saves_at_most: int | None = None
    family: str = ""
    fresh: bool = False

    @property
    def offloads(self) -> bool:
        """Whether states of a training go to the host's memory."""
        return any(self.values.get(key) for key in ON_THE_HOST)

    def of(self, scenario: Scenario) -> Scenario:
        """The changed scenario. Raises ScenarioError where the values contradict others."""
        if self.fresh:
            table = table_of(scenario.task)
            scenario = scenario.replace(**{table: TABLES[table]()})
        return changed(scenario, self.values)


LENGTHS = frozenset({"max_model_len", "n_ctx"})
"""Keys of the tokens of a request."""
ON_THE_HOST = ("offload_optimizer", "offload_params")
SDPA = Change("attention sdpa", {"attention": "sdpa"}, "none", Cost.NOTHING)
FLASH = Change("attention flash", {"attention": "flash"}, "needs flash-attn", Cost.A_PACKAGE)


def changed(scenario: Scenario, values: Mapping[str, object]) -> Scenario:
    """The scenario with other values, each of which counts as given. Raises ScenarioError where they contradict."""
    top = {key: value for key, value in values.items() if key in KINDS[Scenario]}
    inner = {key: value for key, value in values.items() if key not in top}
    if inner:
        table = table_of(scenario.task)
        top[table] = getattr(scenario, table).replace(**inner)
    return scenario.replace(**top).checked()


@record
class Asked:
    """A scenario with its answer, and what candidates are chosen by."""

    scenario: Scenario
    result: Result

    @property
    def settings(self) -> Mapping[str, object]:
        """The task's table with the values that the engine or framework took where none was given."""
        table: Mapping[str, object] = self.result.scenario.get(table_of(self.scenario.task)) or {}
        return table

    @property
    def need(self) -> int:
        return int(self.result.needed.expected)

    @property
    def usable(self) -> int | None:
        return self.result.capacity.usable_bytes if self.result.capacity is not None else None

    @property
    def is_short(self) -> bool:
        """Whether the card is too small, or hardly enough."""
        verdict = self.result.verdict
        return verdict is not None and verdict.word != "fits"

    @property
    def peak(self) -> Node | None:
        """What is held at the largest moment."""
        phase = next((phase for phase in self.result.phases if phase.name == self.result.peak_phase), None)
        return phase.components if phase is not None else None

    def at_least(self, name: str) -> int | None:
        """The low end of a searched limit (`max_batch`, `max_seq`), where the answer has it."""
        found = self.result.quantities.get(name)
        return int(found.low) if found is not None else None


def rows_of_a_sample(train: TrainSettings) -> int:
    """Rows of a micro batch that only come together: a preference is the chosen and the rejected answer of a prompt
    (trl 1.16 trainer/dpo_trainer.py DataCollatorForPreference: `chosen + rejected`)."""
    return 2 if train.loss == "preference" else 1


def runs(asked: Asked, feature: str) -> bool:
    """Whether the card may have what `Gpu.supports` names; True where that is not known."""
    if asked.scenario.gpu is None:
        return True
    try:
        return find_gpu(asked.scenario.gpu).gpu.supports(feature) is not False
    except UnknownNameError:
        return True
