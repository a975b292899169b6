"""What an exported command or file says when we read it ourselves, and where that differs from the scenario."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from vramwise.errors import VramwiseError, clipped
from vramwise.interop.export.draft import Draft
from vramwise.interop.launch import Launch, read_command
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.units import format_bytes

_OF_THE_MACHINE = ("gpu", "gpus", "gpu_total_bytes", "gpu_free_bytes", "reserve_bytes", "driver", "gpus_per_node")
_NAMES_THE_RUN = frozenset({"engine", "engine_version", "framework", "framework_version", "variant"})
_SETS = frozenset({"lora_targets", "kernels"})
"""Lists whose order says nothing."""
_QUANTITY = "total_needed"


def scenario_back(draft: Draft, scenario: Scenario) -> Scenario:
    """The scenario of the command that was written, on the same machine and of the same versions."""
    launch = _launch(draft)
    hardware = {key: getattr(scenario, key) for key in _OF_THE_MACHINE if key in scenario.explicit}
    found = {**launch.scenario, "model": scenario.model, **hardware}
    table = dict(_table(found.get(scenario.task)))
    for key in _NAMES_THE_RUN & scenario.settings.explicit:
        if key.endswith("_version"):
            table[key] = getattr(scenario.settings, key)
    return Scenario.from_dict({**found, scenario.task: table})


def _launch(draft: Draft) -> Launch:
    if draft.manifest:
        from vramwise.interop.files.launches import read_files

        return read_files([draft.files[0].path])[0].launch
    words = [f"{name}={value}" for name, value in draft.environment.items()]
    return read_command([*words, *(draft.reads or draft.words)])


def differences(scenario: Scenario, result: Result, back: Scenario, again: Result) -> Iterator[str]:
    """Stated keys that came back with another value, and the need where it did."""
    there, here = _table(again.scenario.get(scenario.task)), _table(result.scenario.get(scenario.task))
    changed = moved(result, again)
    for key in sorted(scenario.settings.explicit - _NAMES_THE_RUN):
        asked, got = here.get(key), there.get(key)
        by_default = isinstance(asked, bool) and got is None and not changed
        if key in _SETS and isinstance(asked, list | tuple) and isinstance(got, list | tuple):
            asked, got = sorted(asked), sorted(got)
        if _plain(asked) != _plain(got) and not by_default:
            runs = "" if got is None else f"; it runs with {_shown(got)}"
            yield f"{key}: {_shown(asked)} cannot be said{runs}"
    if "num_gpus" in scenario.explicit and scenario.num_gpus != back.num_gpus:
        yield f"num_gpus: {scenario.num_gpus} cannot be said; it runs on {back.num_gpus}"
    if changed:
        need, other = (one.quantities.get(_QUANTITY) for one in (result, again))
        if need is not None and other is not None and need.expected != other.expected:
            sizes = [format_bytes(int(one.expected)) for one in (other, need)]
            yield f"memory: as it is written it needs {sizes[0]}, the scenario {sizes[1]}"
        else:
            yield f"memory: {', '.join(changed)} differ from the scenario's"


def moved(result: Result, again: Result) -> list[str]:
    """The quantities that differ."""
    names = {**result.quantities, **again.quantities}
    return [name for name in names if result.quantities.get(name) != again.quantities.get(name)]


def unread(problem: VramwiseError) -> str:
    """A line for a command that our own readers refuse."""
    return f"not checked: what is written cannot be read back here ({clipped(str(problem), 160)})"


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _plain(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=list)


def _shown(value: object) -> str:
    return clipped(_plain(value).strip('"'), 80)
