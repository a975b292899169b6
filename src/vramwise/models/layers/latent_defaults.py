"""The config of a decoder with multi-head latent attention, with what its class takes for keys that are left out."""

from __future__ import annotations

from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import class_defaults, num_experts_of_class


def completed(c: Config) -> tuple[Config, int | None]:
    """The config with its class's defaults, and the class's number of experts, None without any.

    An explicit null of `q_lora_rank` means queries without compression.
    """
    defaults = class_defaults(c.model_type)
    if "q_lora_rank" in c.values and c.values["q_lora_rank"] is None:
        del defaults["q_lora_rank"]
    return c.filled(defaults), num_experts_of_class(c.model_type)
