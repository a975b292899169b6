"""The question: a model, a task and the hardware, read from a file, a JSON line or flags and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramwise import come_when_asked_for
from vramwise.scenario.definition import GenerateSettings, Scenario, ServeSettings, Settings, TrainSettings
from vramwise.scenario.files import read_scenario_file, read_table_file

if TYPE_CHECKING:
    from vramwise.scenario.schema import scenario_schema
else:
    __getattr__ = come_when_asked_for(__name__, {"scenario_schema": "schema"})

__all__ = [
    "GenerateSettings",
    "Scenario",
    "ServeSettings",
    "Settings",
    "TrainSettings",
    "read_scenario_file",
    "read_table_file",
    "scenario_schema",
]
