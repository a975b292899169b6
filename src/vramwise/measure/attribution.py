"""Which module keeps what: forward hooks that note the bytes held before and after each module of a layer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vramwise.measure.recorder import Recorder

DEEPEST = 2
"""Modules below a layer of a list: its norms, its attention and MLP, and their parts."""

_NUMBER = re.compile(r"\.\d+(?=\.|$)")


@dataclass(frozen=True, slots=True)
class ModuleShare:
    """Modules of one place in every layer (`model.layers.*.mlp`): how many, their weights, what their forward kept."""

    name: str
    count: int
    weights: int
    kept: int


class ModuleNotes:
    """Hooks on modules; they note only while `active`, and only what forward itself runs (not a recomputation)."""

    def __init__(self, model: Any, recorder: Recorder) -> None:
        self.active = False
        self._recorder = recorder
        self._handles = []
        for name, module in model.named_modules():
            if name and _depth(name) <= DEEPEST:
                self._handles.append(module.register_forward_pre_hook(self._note(f"in|{name}")))
                self._handles.append(module.register_forward_hook(self._note(f"out|{name}")))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _note(self, label: str) -> Callable[..., None]:
        def hook(*_: object) -> None:
            if self.active:
                self._recorder.note(label)

        return hook


def _depth(name: str) -> int:
    """Parts of a module's name below the last number in it (a list of layers), or all of them."""
    parts = name.split(".")
    numbered = [i for i, part in enumerate(parts) if part.isdigit()]
    return len(parts) - 1 - numbered[-1] if numbered else len(parts) - 1


def module_weights(model: Any) -> dict[str, int]:
    """Bytes of the weights inside each module that is noted."""
    found = {}
    for name, module in model.named_modules():
        if name and _depth(name) <= DEEPEST:
            found[name] = sum(p.numel() * p.element_size() for p in module.parameters())
    return found


def module_shares(notes: Sequence[tuple[str, int]], weights: Mapping[str, int]) -> list[ModuleShare]:
    """What each place kept in forward, equal places of all layers together, in the order in which they ran."""
    before: dict[str, int] = {}
    kept: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    for label, held in notes:
        what, _, name = label.partition("|")
        if what == "in":
            before[name] = held
        elif name in before:
            place = _NUMBER.sub(".*", name)
            kept.setdefault(place, []).append(held - before.pop(name))
            sizes[place] = sizes.get(place, 0) + weights.get(name, 0)
    return [ModuleShare(place, len(values), sizes[place], sum(values)) for place, values in kept.items()]
