"""The question: a model, a task and the hardware, read from a file, a JSON line or flags and checked."""

from vramwise.scenario.definition import GenerateSettings, Scenario, ServeSettings, Settings, TrainSettings
from vramwise.scenario.files import read_scenario_file, read_table_file
from vramwise.scenario.schema import scenario_schema

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
