"""The question: a model, a task and the hardware, read from a file, a JSON line or flags and checked."""

from .definition import GenerateSettings, Scenario, ServeSettings, Settings, TrainSettings
from .files import read_scenario_file, read_table_file
from .schema import scenario_schema

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
