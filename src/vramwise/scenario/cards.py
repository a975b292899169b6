"""What people write for `gpu` that is more, or less, than a card's name: `2x4090` and `24GB`."""

from __future__ import annotations

import re
from typing import Any

from vramwise.errors import ScenarioError, clipped
from vramwise.scenario.definition import KINDS, Scenario
from vramwise.units import format_bytes

# 7900xtx and 9070xt are names of cards, not 7,900 of them.
_SEVERAL = re.compile(r"\s*(\d+)\s*[x×*](?!tx?\b)\s*(\S.*)", re.IGNORECASE)
_MEMORY_ALONE = re.compile(r"\s*([\d.,]+)\s*([kmgt]b?|[kmgt]ib)\s*", re.IGNORECASE)


def with_plain_card(scenario: Scenario) -> Scenario:
    """The scenario with `num_gpus` out of a gpu such as `2x4090`, and `gpu_total_bytes` out of one such as `24GB`.

    Raises ScenarioError where the scenario says otherwise beside it.
    """
    written = scenario.gpu
    if written is None:
        return scenario
    several = _SEVERAL.fullmatch(written)
    if several is not None:
        count = KINDS[Scenario]["num_gpus"].read(int(several[1][:20]), "gpu")
        scenario = _stated(scenario, "num_gpus", count).replace(gpu=several[2])
    memory = several[2] if several is not None else written
    alone = _MEMORY_ALONE.fullmatch(memory)
    if alone is None:
        return scenario
    size = KINDS[Scenario]["gpu_total_bytes"].read(memory.strip(), "gpu")
    note = f'gpu "{clipped(memory)}" names no card: read as gpu_total_bytes, {format_bytes(size)}'
    if len(alone[2]) == 2:  # drivers report a card that is sold with 24 GB as one of nearly 24 GiB
        note += f'; a card sold with that has more: "{alone[1]}GiB"'
    return _stated(scenario, "gpu_total_bytes", size).replace(gpu=None, notes=(*scenario.notes, note))


def _stated(scenario: Scenario, key: str, value: int) -> Scenario:
    beside: Any = getattr(scenario, key)
    if key in scenario.explicit and beside is not None and beside != value:
        raise ScenarioError("gpu", f'"{clipped(scenario.gpu or "")}" contradicts {key} {beside}: leave one out')
    return scenario.replace(**{key: value})
