"""The config of a decoder with routed experts, with what its class takes for keys that are left out."""

from __future__ import annotations

from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import class_defaults, num_experts_of_class


def completed(c: Config) -> tuple[Config, int | None]:
    """The config with its class's defaults, and the class's number of experts, None without one."""
    defaults = class_defaults(c.model_type)
    if "sliding_window" in c.values and c.values["sliding_window"] is None:  # no window, not the class's
        defaults.pop("sliding_window", None)
    return c.filled(defaults), num_experts_of_class(c.model_type)
