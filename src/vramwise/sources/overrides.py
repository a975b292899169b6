"""A model whose config is other in places, as vLLM's `--hf-overrides` and the flags of other programs make it.

Source: vLLM 0.19 config/model.py _update_nested: tables inside the config are changed key by key, all else is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from vramwise.memo import Memo
from vramwise.records import replace
from vramwise.sources.repository import ModelSource, checked

_kept: Memo[tuple[int, str], tuple[ModelSource, dict[str, object]]] = Memo(64)
"""Changed configs beside the source that they are of: a description is kept by the object that its config is."""


def with_overrides(found: ModelSource, overrides: Mapping[str, object]) -> ModelSource:
    """The source with these keys in its config. Raises SourceError for values that no config may hold."""
    text = json.dumps(checked(overrides, "hf_overrides"), sort_keys=True, default=str)
    _, config = _kept.get((id(found.config), text), lambda: (found, _updated(found.config, overrides)))
    return replace(found, config=config)


def _updated(config: Mapping[str, object], overrides: Mapping[str, object]) -> dict[str, object]:
    table = dict(config)
    for key, value in overrides.items():
        inner = table.get(key)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            value = _updated(inner, value)
        table[key] = value
    return table
