"""A scenario as the command that estimates it: every key that was given is a flag."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from vramwise.scenario import Scenario
from vramwise.scenario.definition import KINDS, table_of
from vramwise.scenario.values import Kind, Switch


def estimate_command(scenario: Scenario) -> str | None:
    """`vramwise estimate MODEL --task …`; None for a model that is a table, which no flag holds."""
    if not isinstance(scenario.model, str):
        return None
    words = ["vramwise", "estimate", scenario.model, "--task", scenario.task]
    words += _flags(KINDS[Scenario], scenario, scenario.explicit - {"model", "task"})
    settings = getattr(scenario, table_of(scenario.task))
    words += _flags(KINDS[type(settings)], settings, settings.explicit)
    return shlex.join(words)


def _flags(kinds: Mapping[str, Kind[object]], table: object, given: frozenset[str]) -> Iterator[str]:
    for key, kind in kinds.items():
        value = getattr(table, key)
        if key not in given or value is None:
            continue
        name = key.replace("_", "-")
        if not isinstance(kind, Switch):
            yield from (f"--{name}", _text(kind.to_json(value)))
        elif value:
            yield f"--{name}"
        else:
            yield f"--{name.removeprefix('no-')}" if name.startswith("no-") else f"--no-{name}"


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={entry}" for key, entry in value.items())
    if isinstance(value, list | tuple):
        return ",".join(_text(entry) for entry in value)
    return f"{value:.15g}" if isinstance(value, float) else str(value)
