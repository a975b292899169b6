"""What a training command leaves to the model's own config: its type, and the dtype of its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.errors import VramwiseError


def config_of(model: str) -> Mapping[str, Any]:
    """The model's config; empty where it is not known here, which the estimate then says."""
    from vramwise.sources import model_elsewhere, resolve

    try:
        found = model_elsewhere(model)
        return resolve(found[0] if found else model).config
    except VramwiseError:
        return {}


def checkpoint_dtype(model: str) -> str:
    """The dtype that the config names, bfloat16 where it names none."""
    config = config_of(model)
    inner = config.get("text_config")
    for table in (config, inner if isinstance(inner, Mapping) else {}):
        named = table.get("dtype") or table.get("torch_dtype")
        if isinstance(named, str):
            return named.removeprefix("torch.")
    return "bfloat16"


def model_type(model: str) -> str:
    """The transformers model type, empty where it is not known here."""
    return str(config_of(model).get("model_type", ""))
