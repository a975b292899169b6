"""Layers that repeat: how few of a model's layers stand for all, and the model's config with so few.

A layer's fingerprint is what it is made of: classes, plain attributes (but its number), shapes and types of parameters
and buffers, and its place in the lists that the config has for every layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from vramwise.measure.building import built
from vramwise.measure.job import Job
from vramwise.measure.libraries import library

_COUNTS: Final = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_NUMBERS: Final = frozenset({"layer_idx", "layer_id", "layer_number", "layer_index"})
_LONGEST_PERIOD: Final = 8
_MOST_BEFORE: Final = 4
_PERIODS: Final = 3
"""Layers before, between and after what is repeated: the first and the last have neighbours of another kind."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """`path`: the list of layers; those from `first` on repeat every `period`; `depth` layers stand for `count`."""

    path: str
    first: int
    period: int
    count: int

    @property
    def depth(self) -> int:
        """The fewest layers in which a period has a whole one before and after it."""
        return self.first + _PERIODS * self.period + (self.count - self.first) % self.period

    @property
    def end(self) -> int:
        """The layer behind the period that is to be repeated."""
        return self.first + 2 * self.period

    @property
    def times(self) -> int:
        """How many more periods the whole model has."""
        return (self.count - self.depth) // self.period

    def layer_of(self, module: str) -> int | None:
        """The number of the layer that a module lies in."""
        found = re.search(rf"(?:^|\.){re.escape(self.path)}\.(\d+)(?:\.|$)", module)
        return int(found[1]) if found else None

    def renamed(self, module: str, layer: int) -> str:
        """A module's name as that of another layer."""
        return re.sub(rf"((?:^|\.){re.escape(self.path)}\.)\d+(?=\.|$)", rf"\g<1>{layer}", module, count=1)


def repeated_layers(job: Job) -> Repeated | None:
    """Which layers of a job's model repeat; None where all have to be run, or where that would not be longer."""
    count = next((job.config[key] for key in _COUNTS if isinstance(job.config.get(key), int)), None)
    if not isinstance(count, int):
        return None
    whole = _layers(job)
    if whole is None or len(whole[1]) != count:
        return None
    path, prints = whole
    choices = [
        Repeated(path, first, period, count)
        for period in range(1, _LONGEST_PERIOD + 1)
        for first in range(_MOST_BEFORE + 1)
        if all(prints[at] == prints[at + period] for at in range(first, count - period))
    ]
    found = min(choices, key=lambda one: one.depth, default=None)  # of equal ones the first has the shortest period
    if found is None or 2 * found.depth + found.period >= count:
        return None
    fewer = _layers(cut(job, found.depth))
    same = fewer is not None and fewer[0] == path and fewer[1] == prints[: found.depth]
    return found if same else None


def cut(job: Job, depth: int) -> Job:
    """A job whose model has its first `depth` layers."""
    config = job.config
    count = next(config[key] for key in _COUNTS if isinstance(config.get(key), int))
    lists = {key: value[:depth] for key, value in config.items() if isinstance(value, list) and len(value) == count}
    return replace(job, config={**config, **{key: depth for key in _COUNTS if key in config}, **lists})


def _layers(job: Job) -> tuple[str, list[object]] | None:
    """The name of the one list of layers, and their fingerprints; None where there are several lists, or none."""
    try:
        model = built(job, "meta")
    except Exception:  # whatever a class raises: the run of all layers says it
        return None
    lists = [(name, one) for name, one in model.named_modules() if type(one).__name__ == "ModuleList" and len(one)]
    outer = [pair for pair in lists if not any(pair[0].startswith(f"{name}.") for name, _ in lists)]
    if len(outer) != 1:
        return None
    path, layers = outer[0]
    every = [value for value in vars(model.config).values() if isinstance(value, list) and len(value) == len(layers)]
    return path, [(*_fingerprint(layer), *(repr(one[number]) for one in every)) for number, layer in enumerate(layers)]


def _fingerprint(layer: Any) -> Iterator[object]:
    for name, module in layer.named_modules():
        own: Mapping[str, object] = vars(module)
        plain = {key: value for key, value in own.items() if key not in _NUMBERS and _is_plain(value)}
        tensors = [*module._parameters.items(), *module._buffers.items()]
        shapes = [(key, None if one is None else (tuple(one.shape), str(one.dtype))) for key, one in tensors]
        yield name, type(module).__name__, sorted(plain.items(), key=lambda pair: pair[0]), shapes


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | library("torch").dtype)
