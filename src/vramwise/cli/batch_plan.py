"""`vramwise batch --plan`: each line is planned instead of estimated: many models over many clusters."""

from __future__ import annotations

import json
from collections.abc import Mapping

from vramwise.errors import UsageError, clipped
from vramwise.planner.inventory import read_inventory
from vramwise.planner.option import GOALS, Wishes
from vramwise.planner.plan import plan
from vramwise.planner.recorded_shapes import recalled
from vramwise.scenario import Scenario

INVENTORY = "inventory"


def planned(scenario: Scenario, document: Mapping[str, object], rank: str) -> str:
    """What `vramwise plan --json` prints of this scenario; the line's `inventory` names a file of GPUs.

    Raises UsageError for a task that nothing is planned for.
    """
    goals = [goal for goal, task in GOALS.items() if task == scenario.task]
    if not goals:
        raise UsageError(f"a plan needs the task serve or train, got {scenario.task}")
    given = document.get(INVENTORY)
    if given is not None and not isinstance(given, str):
        raise UsageError(f"{INVENTORY}: expected the name of a file, got {clipped(str(given))}")
    pools = read_inventory(given) if given is not None else []
    with recalled(scenario.model):
        found = plan(scenario, Wishes(goal=goals[0], rank=rank), pools)
    return json.dumps(found.to_dict(), allow_nan=False, separators=(",", ":"))
