"""A scenario that others can estimate too: a model of this machine's disk becomes its config."""

from __future__ import annotations

import os
from collections.abc import Mapping

from vramwise.scenario import Scenario
from vramwise.site.case import is_public_name, portable
from vramwise.sources.resolve import resolve


def portable_scenario(scenario: Scenario) -> dict[str, object]:
    """The scenario's keys with a public name of its model, or with the config itself; no path is in it."""
    model = scenario.model
    table = {key: portable(value) for key, value in scenario.to_dict().items() if key != "model"}
    is_named = isinstance(model, str) and is_public_name(model) and not os.path.exists(model)
    if is_named:
        return {"model": model, **table}
    config = portable(dict(resolve(model).config) if not isinstance(model, Mapping) else dict(model))
    return {"model": config, **table}
