"""A scenario as the command line that asks it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence

from vramwise.scenario.definition import KINDS, Scenario
from vramwise.scenario.settings import Settings

CONFIG = "config.json"
"""What stands for a model that was given as a table."""


def command_line(scenario: Scenario, verb: str = "estimate") -> str:
    """`vramwise estimate MODEL --task …` with every key that was stated, quoted for a shell."""
    return shlex.join(["vramwise", verb, *command_words(scenario)])


def command_of(scenario: Scenario) -> str | None:
    """`command_line`; None for a model that is a table, which no flag holds."""
    return command_line(scenario) if isinstance(scenario.model, str) else None


def command_words(scenario: Scenario) -> list[str]:
    """The words behind `vramwise estimate`: MODEL, then a flag for each key that was stated and has a value."""
    model = scenario.model if isinstance(scenario.model, str) else CONFIG
    stated = scenario.explicit - {"model", "task", "train", "serve", "generate"}
    inner = scenario.settings
    return [model, "--task", scenario.task, *_flags(scenario, stated), *_flags(inner, inner.explicit)]


def _flags(settings: Settings, stated: frozenset[str]) -> Iterator[str]:
    """The flags of a table's keys, in the order of its definition; what reading noted of them has none."""
    for key in KINDS[type(settings)]:
        value = getattr(settings, key)
        if key not in stated or value is None or value == () or value == {}:
            continue
        name = key.replace("_", "-")
        if value is True:
            yield f"--{name}"
        elif value is False:
            yield f"--{name.removeprefix('no-')}" if name.startswith("no-") else f"--no-{name}"
        else:
            yield f"--{name}"
            yield _text(value)


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
