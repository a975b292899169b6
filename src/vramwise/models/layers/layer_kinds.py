"""Which kind of mixer each layer of a hybrid has, by the config's list or the class's pattern."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.models.config import Config

_OLD_NAMES = {"mamba": "linear_attention", "attention": "full_attention"}
"""Kinds of layers as older configs spell them (transformers 5.23, configuration_utils.py)."""


def old_names(kinds: Sequence[object]) -> list[str]:
    """Kinds of layers under the names that the library has for them now."""
    return [_OLD_NAMES.get(str(kind), str(kind)) for kind in kinds]


def layer_kinds(c: Config, default: Sequence[str], *, key: str = "layer_types", allowed: Sequence[str]) -> list[str]:
    """The kind of each layer by the config's list, else by the class's default; names beyond the last layer are not
    looked at."""
    given = c.items(key)
    kinds = old_names(default if given is None else given)
    if len(kinds) < c.num_hidden_layers:
        raise c.error(f"{key} names {len(kinds)} layers, num_hidden_layers is {c.num_hidden_layers}")
    kinds = kinds[: c.num_hidden_layers]
    for kind in kinds:
        if kind not in allowed:
            raise c.error(f'{key}: "{kind:.40}" is no kind of layer; known are {", ".join(allowed)}')
    return kinds


def every(c: Config, period: int, *, first: int = 1) -> list[str]:
    """Every `period`th layer full, the others linear."""
    layers = range(c.num_hidden_layers)
    return ["linear_attention" if (i + first) % period else "full_attention" for i in layers]
