"""What a watch is held against: a scenario, a result, or a file of either."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vramwise.errors import UnknownNameError, UsageError
from vramwise.estimation import estimate
from vramwise.measure.difference import without_workspaces
from vramwise.result import Quantity, Result
from vramwise.scenario import Scenario
from vramwise.scenario.files import read_table_file

Given = Scenario | Result | Mapping[str, object] | str | Path
COUNTERS = ("peak_allocated", "peak_reserved", "nvidia_smi")


def scenario_of(given: Given) -> tuple[Scenario, Result | None]:
    """The scenario, and the result where that was given.

    A file holds a scenario (TOML, YAML, JSON), a result as `estimate --json` prints it, or a measured case. Raises
    UsageError for anything else, SourceError for a file that cannot be read, ScenarioError for a wrong scenario.
    """
    if isinstance(given, Result):
        return Scenario.from_dict(given.scenario), given
    if isinstance(given, Scenario):
        return given, None
    if isinstance(given, str | Path):
        given = read_table_file(given)
    if not isinstance(given, Mapping):
        raise UsageError(f"watch: expected a Scenario, a Result, a table or a file, got {type(given).__name__}")
    if "schema" in given:
        return scenario_of(Result.from_dict(given))
    inner = given.get("scenario")
    return Scenario.from_dict(inner if "measured" in given and isinstance(inner, Mapping) else given), None


def with_card(scenario: Scenario, device: str) -> Scenario:
    """The scenario on the card at hand, where it names none."""
    if scenario.gpu is not None or scenario.gpu_total_bytes is not None or not device.startswith("cuda"):
        return scenario
    from vramwise.hardware import find_installed_gpu
    from vramwise.measure.libraries import library

    card = library("torch").cuda.get_device_properties(int(device.partition(":")[2] or 0))
    try:
        name: str | None = find_installed_gpu(card.name, int(card.total_memory)).gpu.id
    except UnknownNameError:
        name = None
    return scenario.replace(gpu=name, gpu_total_bytes=int(card.total_memory))


def expected(result: Result, *, on_cpu: bool) -> dict[str, Quantity]:
    """The counters that an estimate gives, by name.

    On a CPU there is only what tensors take, without the CUDA context and the libraries' workspaces.
    """
    if not on_cpu:
        return {name: result.quantities[name] for name in COUNTERS if name in result.quantities}
    return {"peak_allocated": without_workspaces(result)}


def estimated_again(scenario: Scenario, changes: Mapping[str, object]) -> Result:
    """The estimate with other values in the task's table."""
    table = scenario.settings.replace(**changes)
    return estimate(scenario.replace(**{scenario.task: table}))
