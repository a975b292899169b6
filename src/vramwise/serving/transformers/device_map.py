"""Which module lies on which card under `device_map="auto"`.

Source: transformers 5.23 integrations/accelerate.py `get_balanced_memory` and `infer_auto_device_map`, which are its
own since 5.0, and before accelerate's utils/modeling.py (1.15); tests/models/test_device_map.py runs both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

from vramwise.models import Model
from vramwise.records import record
from vramwise.serving.common.storage import Storage
from vramwise.serving.transformers.module_tree import Module, ModuleTree, module_tree

HOST = "host"
BIGGEST_LEAF = (5, 18)  # `get_balanced_memory` before: the mean of the modules that hold parameters
_SPARE = 1.25
_BITSANDBYTES_SHARE = 0.9  # quantizer_bnb_4bit.py, quantizer_bnb_8bit.py `adjust_max_memory`

Place = int | str
"""The number of a card, or HOST."""


@record(slots=False)
class DeviceMap:
    """Module or parameter to its place, in the order in which they are laid out.

    What has no parameters (a rotary table beside the layers) goes by the first card.
    """

    places: tuple[tuple[str, Place], ...]

    def place_of(self, parameter: str) -> Place:
        """Where a parameter lies: with the nearest module around it."""
        path = parameter
        while path not in self._by_path and path:
            path = path.rpartition(".")[0]
        return self._by_path.get(path, 0)

    @property
    def uses_host(self) -> bool:
        """Whether something finds no place on any card."""
        return HOST in self._by_path.values()

    @cached_property
    def _by_path(self) -> dict[str, Place]:
        return dict(self.places)


@lru_cache(maxsize=256)
def device_map(
    model: Model, storage: Storage, count: int, free_bytes: int | tuple[int, ...] | None, version: tuple[int, ...]
) -> DeviceMap:  # fmt: skip
    """`device_map="auto"` on `count` cards with so much free on each, or on one after the other (None: more than the
    model needs)."""
    tree = module_tree(model, storage)
    free = tree.root.size * 2 + 1 if free_bytes is None else free_bytes
    budgets = balanced(tree, free if isinstance(free, tuple) else (free,) * count, version)
    rule = storage.quantization
    if rule is not None and rule.layout.startswith("bnb"):
        budgets = tuple(budget * _BITSANDBYTES_SHARE for budget in budgets)
    return laid_out(tree, budgets)


def balanced(tree: ModuleTree, free: Sequence[float], version: tuple[int, ...]) -> tuple[float, ...]:
    """Bytes that each card may take: an equal share and room for one more layer, the last card all that is free.

    share + int(1.25 · max(largest module that stays whole, largest module's own parameters)).
    """
    modules = list(tree.root.every_module())
    leaves = [module.leaf_size for module in modules if module.own]
    leaf = max(leaves, default=0) if version >= BIGGEST_LEAF else int(sum(leaves) / max(1, len(leaves)))
    whole = max((module.size for module in modules if module.is_whole), default=0)
    share = tree.root.size // len(free) + int(_SPARE * max(whole, leaf))
    return (*(min(share, one) for one in free[:-1]), free[-1])


def laid_out(tree: ModuleTree, budgets: Sequence[float]) -> DeviceMap:
    """Modules in turn, each to the card at hand while it has room, then to the next, at last to the host's memory."""
    layout = _Layout(tree, budgets)
    while layout.waiting:
        layout.lay_next()
    return DeviceMap(tuple(layout.places.items()))


class _Layout:
    def __init__(self, tree: ModuleTree, budgets: Sequence[float]) -> None:
        self.ties = tree.ties
        self.budgets = budgets
        self.waiting = [*tree.root.own, *tree.root.children]
        self.places: dict[str, Place] = {}
        self.card, self.used = 0, 0.0
        self._reckon_largest(self.waiting)

    def _reckon_largest(self, modules: Sequence[Module]) -> None:
        """The largest layer that waits, for which the first card keeps room, and all of its size."""
        layers = [layer for module in modules for layer in module.layers]
        self.largest = max((layer.size for layer in layers), default=0)
        self.largest_paths = {layer.path for layer in layers if layer.size == self.largest}

    def lay_next(self) -> None:
        module = self.waiting.pop(0)
        self.largest_paths = {
            path for path in self.largest_paths if path != module.path and not path.startswith(f"{module.path}.")
        }
        if not self.largest_paths:
            self._reckon_largest(self._modules_waiting())
        if self.card == len(self.budgets):
            self.places[module.path] = HOST
            return
        kept_free = self.largest if self.card == 0 else 0
        room = self.budgets[self.card] - kept_free - self.used
        tied = self._tied_with(module)
        together = module.size + sum(other.size for other in tied)
        if together <= room:
            self._put(module, tied, together)
        elif not (tied and module.size <= room and self._opened(module, tied)) and not self._split(module):
            self.card, self.used = self.card + 1, 0.0
            self.waiting.insert(0, module)

    def _modules_waiting(self) -> list[Module]:
        return [module for module in self.waiting if not module.is_parameter]

    def _tied_with(self, module: Module) -> list[Module]:
        """What waits and holds a weight that this module shares."""
        outside = (
            name
            for group in self.ties
            if any(map(module.holds, group))
            for name in sorted(group)
            if not module.holds(name)
        )
        found = (next((one for one in self.waiting if one.holds(name)), None) for name in outside)
        return list({one.path: one for one in found if one is not None}.values())

    def _put(self, module: Module, tied: Sequence[Module], size: float) -> None:
        self.used += size
        for one in (module, *tied):
            self.places[one.path] = self.card
        paths = {one.path for one in tied}
        self.waiting = [one for one in self.waiting if one.path not in paths]

    def _opened(self, module: Module, tied: Sequence[Module]) -> bool:
        """Replace the first of the tied modules that may be split by what it holds, and try the module again."""
        for other in tied:
            if other.stays_together:
                continue
            place = self.waiting.index(other)
            inside = [*other.own, *other.children]
            self.waiting = [module, *self.waiting[:place], *inside, *self.waiting[place + 1 :]]
            self._reckon_largest(self._modules_waiting())
            return True
        return False

    def _split(self, module: Module) -> bool:
        """Replace a module by what it holds, where it may be split."""
        if module.is_parameter or module.stays_together:
            return False
        self.waiting = [*module.own, *module.children, *self.waiting]
        self._reckon_largest(self._modules_waiting())
        return True
