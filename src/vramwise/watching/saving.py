"""A watched training as a measured case, in the form that `vramwise accuracy` reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vramwise.measure.libraries import library, versions
from vramwise.measure.outcome import Measured
from vramwise.measure.process_memory import driver_version
from vramwise.measure.saving import case_of
from vramwise.result import Quantity, Result
from vramwise.scenario import Scenario
from vramwise.watching.account import Account
from vramwise.watching.given import estimated_again
from vramwise.watching.reasons import settings_seen

WHOLE_STEPS = 2
"""The first step has no optimizer states before its end."""


def watched_case(scenario: Scenario, result: Result, account: Account, device: str) -> dict[str, object]:
    """The case of a run with the batch, length and settings that were seen, not those that were stated."""
    seen = settings_seen(scenario, result, account)
    asked = estimated_again(scenario, seen) if seen else result
    measured = replace(
        account.measured(asked), quantities={**account.measured(asked).quantities, "oom": Quantity.exact(False)}
    )
    found = Measured(measured, (), (), facts_of(device), account.steps, interrupted=False)
    row = case_of(found, asked.scenario, result.model.id or "model", device)
    row["extra"]["seen_otherwise_than_stated"] = dict(seen)
    notes = ["a user's own training, which may do what the scenario has no name for"]
    return {**row, "source": "vramwise.watch", "confidence": "medium", "specified": "most", "notes": notes}


def facts_of(device: str) -> dict[str, Any]:
    """The card, the driver and the versions of what runs."""
    facts: dict[str, object] = {"versions": versions()}
    if device.startswith("cuda"):
        torch = library("torch")
        properties = torch.cuda.get_device_properties(int(device.partition(":")[2] or 0))
        facts |= {
            "gpu": properties.name, "gpu_total_bytes": int(properties.total_memory), "cuda": torch.version.cuda,
            "driver": driver_version(),
        }  # fmt: skip
    return facts
