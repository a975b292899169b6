"""How a scenario's reader says what is wrong: what was expected, what was given, and what is near."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from vramwise.errors import ScenarioError, clipped, nearest


def refusal(path: str, expected: str, value: object) -> ScenarioError:
    return ScenarioError(path, f"expected {expected}, got {shown(value)}")


def unknown_key(path: str, key: object, known: Sequence[str] | Mapping[str, object]) -> ScenarioError:
    """The refusal of a key that a table does not have, with its nearest neighbours."""
    near = nearest(str(key), known)
    meant = f"did you mean {', '.join(near)}?" if near else f"expected one of {', '.join(known)}"
    full = f"{path}.{key}" if path else str(key)
    return ScenarioError(clipped(full), f"unknown key: {clipped(meant, 200)}")


def shown(value: object) -> str:
    """A given value for a message: as JSON writes it, on one short line."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return f"a number of {len(str(abs(value)))} digits" if abs(value) < 10**300 else "a huge number"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    try:
        return clipped(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError):
        return clipped(str(value))
