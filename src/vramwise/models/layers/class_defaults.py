"""What the configuration classes of transformers 5.23 take for keys that a config leaves out (class_defaults.csv).

A row has a type's keys with their values (models/TYPE/configuration_TYPE.py). A key that is not there has no default,
or one that follows from other keys (as many key-value heads as heads). `experts` is the number of routed experts, whose
key families call otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

from vramwise.models.config import Config
from vramwise.tables import table

_EXPERTS = "experts"


def class_defaults(model_type: str) -> dict[str, object]:
    """What the class of a model type takes for keys that a config leaves out."""
    return {name: value for name, value in _rows()[model_type].items() if name != _EXPERTS}


def num_experts_of_class(model_type: str) -> int | None:
    """The number of experts that the class takes, None without one."""
    experts = _rows()[model_type].get(_EXPERTS)
    return experts if isinstance(experts, int) else None


def with_class_defaults(c: Config) -> Config:
    """The config with its class's defaults where a key is absent; an explicit null stays one."""
    return Config({**class_defaults(c.model_type), **c.values}, c.model_id)


@cache
def _rows() -> Mapping[str, Mapping[str, object]]:
    return {row["model_type"]: dict(map(_key, row.words("defaults"))) for row in table(__file__)}


def _key(word: str) -> tuple[str, object]:
    name, _, value = word.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
