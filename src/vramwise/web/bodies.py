"""Reading what a body holds: one clear refusal for each thing that is missing, unknown or of the wrong kind."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from vramwise.errors import UsageError, clipped, nearest
from vramwise.scenario import Scenario
from vramwise.scenario.values import shown

Body = Mapping[str, Any]


def only(body: Body, *keys: str) -> None:
    """Raises UsageError for a key of the body that is none of these."""
    for key in body:
        if key not in keys:
            close = nearest(str(key), keys)
            meant = f": did you mean {', '.join(close)}?" if close else f": expected {', '.join(keys) or 'none'}"
            raise UsageError(f'the body has an unknown key "{clipped(str(key))}"{meant}')


def scenario_in(body: Body, key: str = "scenario") -> Scenario:
    """The scenario under `key`, on this machine's card where it asks for that. Raises UsageError or ScenarioError."""
    from vramwise.estimation import on_this_machine

    return on_this_machine(Scenario.from_dict(table_in(body, key)))


def table_in(body: Body, key: str) -> Mapping[str, object]:
    """Raises UsageError for a value that is no table."""
    value = body.get(key)
    if not isinstance(value, Mapping):
        raise _refused(key, "a table", value)
    return value


def text_in(body: Body, key: str, default: str | None = None) -> str:
    """Raises UsageError for a value that is no text."""
    value = body.get(key, default)
    if not isinstance(value, str):
        raise _refused(key, "text", value)
    return value


def maybe_text(body: Body, key: str) -> str | None:
    """Raises UsageError for a value that is neither text nor null."""
    return None if body.get(key) is None else text_in(body, key)


def texts_in(body: Body, key: str) -> tuple[str, ...]:
    """A list of texts; none where it is missing. Raises UsageError for any other value."""
    value = body.get(key) or []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _refused(key, "a list of texts", value)
    return tuple(value)


def choice_in(body: Body, key: str, names: Collection[str], default: str) -> str:
    """Raises UsageError for a value that is not among the names."""
    value = text_in(body, key, default)
    if value not in names:
        close = nearest(value, names)
        meant = f": did you mean {', '.join(close)}?" if close else ""
        raise UsageError(f'{key}: expected one of {", ".join(names)}; got "{clipped(value)}"{meant}')
    return value


def whole_in(body: Body, key: str, default: int, *, least: int = 1, most: int = 2**53 - 1) -> int:
    """Raises UsageError for a value that is no whole number in the range."""
    value = body.get(key, default)
    if type(value) is not int or not least <= value <= most:
        raise _refused(key, f"a whole number from {least:,} to {most:,}", value)
    return value


def number_in(body: Body, key: str) -> float | None:
    """A number above zero, or None. Raises UsageError for any other value."""
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e18:
        raise _refused(key, "a number above 0", value)
    return float(value)


def switch_in(body: Body, key: str, default: bool) -> bool:
    """Raises UsageError for a value that is neither."""
    value = body.get(key, default)
    if not isinstance(value, bool):
        raise _refused(key, "true or false", value)
    return value


def _refused(key: str, expected: str, value: object) -> UsageError:
    return UsageError(f"{key}: expected {expected}, {'it is missing' if value is None else f'got {shown(value)}'}")
