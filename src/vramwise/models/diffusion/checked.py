"""Lists and counts in the configs of Diffusers, checked: a wrong value is one clear line."""

from __future__ import annotations

from vramwise.models.config import MOST_LAYERS, Config

_MOST_ENTRIES, _WIDEST = 64, 1_000_000


def whole_numbers(c: Config, key: str, least: int = 1) -> list[int]:
    """A list of whole numbers from `least`; empty where it is absent. Raises SourceError."""
    values = c.items(key) or []
    if len(values) > _MOST_ENTRIES or not all(_is_whole(one, least) for one in values):
        raise c.error(f"{key}: expected at most {_MOST_ENTRIES} whole numbers from {least} to {_WIDEST:,}")
    return [int(one) for one in values]


def one_for_each(c: Config, key: str, count: int) -> list[int]:
    """A whole number for each of so many levels, given once or one by one. Raises SourceError."""
    if not isinstance(c.get(key), list | tuple):
        return [number_of_layers(c, key, _WIDEST)] * count
    values = whole_numbers(c, key)
    if len(values) != count:
        raise c.error(f"{key}: expected {count} values, got {len(values)}")
    return values


def number_of_layers(c: Config, key: str, most: int = MOST_LAYERS, least: int = 1) -> int:
    """A count that is built one by one. Raises SourceError above `most`."""
    count = c.size(key, least=least)
    if count > most:
        raise c.error(f"{key}: expected at most {most:,}, got {count:,}")
    return count


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _WIDEST
