"""The one definition of a scenario: keys, defaults, bounds, accepted names, owners and help.

Reading files, checking values, JSON Schema and command-line flags are all generated from the fields below and in
training.py and inference.py. The first name of a choice is its default. A default of None means that the engine, the
framework or the model decides; the estimate fills it in and writes it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Self

from vramwise.engines import engine_of_files
from vramwise.records import record
from vramwise.scenario import names
from vramwise.scenario.cards import SizeOrShare, plain_cards
from vramwise.scenario.checks import TaskSettings, checked
from vramwise.scenario.fields import ConfigKeys, ModelReference, Several, choice, key, size, text, whole
from vramwise.scenario.inference import GenerateSettings, ServeSettings, engines_of
from vramwise.scenario.nested import read_scenario
from vramwise.scenario.settings import Settings, defaults_of, kinds_of
from vramwise.scenario.training import TrainSettings
from vramwise.scenario.values import Kind, Text, choice_kind

__all__ = [
    "DEFAULTS",
    "KINDS",
    "TABLES",
    "GenerateSettings",
    "Scenario",
    "ServeSettings",
    "Settings",
    "TrainSettings",
    "engines_of",
    "table_of",
]


@record(kw_only=True, repr=False, slots=False)
class Scenario(Settings):
    """A model, a task and the hardware: the question that an estimate answers.

    The tables of other tasks hold their defaults and mean nothing. For `task: load`, `serve` may say for
    which engine the weights are loaded (`"engine" in scenario.serve.explicit`). `notes` say what reading the
    scenario resolved by itself; they belong into the result.
    """

    model: str | Mapping[str, object] = key(
        ModelReference(help="model: catalog id, hub id, URL or path"), "", hash=False
    )
    source: str = choice("where alone to look for the model's description", names.MODEL_SOURCES)
    revision: str | None = text("branch, tag or commit of the model's repository")
    hf_overrides: Mapping[str, object] | None = key(
        ConfigKeys(help="keys of the model's config that are other (rope_scaling, …)", optional=True),
        None,
        hash=False,
    )
    library: str = choice("whose model it is, where its files leave that open", names.LIBRARIES)
    task: str = key(choice_kind("what the GPU is for", names.TASKS, meant=names.TASKS_MEANT), "")
    gpu: str | None = text("GPU by name: 4090, 2xh100, h100 1g.10gb, 24GiB, or here (this machine's)")
    gpus: tuple[str, ...] | None = key(
        Several(help="unequal GPUs of one machine, by name, instead of gpu", item=Text(help="one GPU"), optional=True),
        None,
    )
    gpu_total_bytes: int | None = size("exact memory of one GPU, where known")
    gpu_free_bytes: int | None = size("what of it is free at the start, where others hold some")
    host_memory_bytes: int | None = size("memory of a node's host, where known, for what is offloaded")
    reserve_bytes: int | str | None = key(
        SizeOrShare(help="what must stay free: a size, or a share such as 10%", optional=True), None
    )
    driver: str | None = text("version of the GPU's driver, where known")
    num_gpus: int = whole("GPUs in all; 0 is CPU only (llama.cpp, load)", 1, minimum=0)
    gpus_per_node: int = whole("GPUs in a node", 8)
    network_gbit_s: int | None = whole("network of a whole node in Gbit/s, for step times")
    train: TrainSettings = TrainSettings()
    serve: ServeSettings = ServeSettings()
    generate: GenerateSettings = GenerateSettings()
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Scenario:
        """Read and check a scenario. Raises ScenarioError with the path of what is wrong."""
        values = read_scenario(data, cls, TABLES)
        return cls(**values, explicit=frozenset(values)).checked()

    def checked(self) -> Self:
        """The scenario with what follows from its keys filled in. Raises ScenarioError for a contradiction."""
        given = self.explicit
        cards = plain_cards(
            self.gpu,
            self.num_gpus if "num_gpus" in given else None,
            self.gpu_total_bytes,
            self.gpus,
        )
        settings, said_of_files = self._for_its_files(self.settings)
        of_weights = self.task == "load" and "engine" not in settings.explicit
        if self.library == names.EMBEDDERS and isinstance(settings, TrainSettings) and "head" not in settings.explicit:
            settings = settings.replace(head="none")  # its losses compare embeddings
        found = checked(settings, cards.num_gpus, on_cpu=of_weights)
        said = {
            "gpu": cards.gpu,
            "gpus": cards.gpus,
            "gpu_total_bytes": cards.gpu_total_bytes,
            "num_gpus": self.num_gpus if found.num_gpus is None else found.num_gpus,
            table_of(self.task): found.table,
            "notes": tuple(dict.fromkeys((*self.notes, *said_of_files, *cards.notes, *found.notes))),
        }
        changes = {key: value for key, value in said.items() if value != getattr(self, key)}
        return self.replace(**changes) if changes else self

    def _for_its_files(self, settings: TaskSettings) -> tuple[TaskSettings, tuple[str, ...]]:
        """The settings with the engine whose files the model's name means, where none is said; a note on it."""
        if not isinstance(settings, ServeSettings) or "engine" in settings.explicit:
            return settings, ()
        engine = engine_of_files(self.model)
        if engine is None:
            return settings, ()
        return settings.replace(engine=engine.name), (f"engine {engine.name}: the model's name means files for it",)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {table_of(self.task)}={self.settings!r})"

    @property
    def settings(self) -> TaskSettings:
        """The table of the scenario's task (`load`: serve)."""
        if self.task == "train":
            return self.train
        return self.generate if self.task == "generate" else self.serve

    def to_dict(self) -> dict[str, object]:
        """Everything that has a value, defaults included, with the task's own table only."""
        table = super().to_dict()
        if self.task != "load":
            table[self.task] = self.settings.to_dict()
        elif self.serve.explicit:
            table["serve"] = self.serve.to_dict()
        return table


TABLES: dict[str, type[Settings]] = {
    "train": TrainSettings,
    "serve": ServeSettings,
    "generate": GenerateSettings,
}
"""Task tables by name."""

KINDS: dict[type[Settings], Mapping[str, Kind[object]]] = {
    cls: kinds_of(cls) for cls in (Scenario, TrainSettings, ServeSettings, GenerateSettings)
}
"""The kind of every key, by table."""

DEFAULTS: dict[type[Settings], Mapping[str, object]] = {cls: defaults_of(cls) for cls in KINDS}
"""The default of every key, by table."""


def table_of(task: str) -> str:
    """The name of the task's table: its own, and `serve` for `load`."""
    return "serve" if task == "load" else task
