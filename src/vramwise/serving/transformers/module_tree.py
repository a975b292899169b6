"""A model's modules as `device_map="auto"` sees them: which stand in which, what each weighs, which stay whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache

from vramwise.models import Model, Parameter
from vramwise.models.type_facts import fact_value, has_fact
from vramwise.records import record
from vramwise.serving.common.storage import Storage


@record(slots=False, eq=False)
class Module:
    """A module, or one parameter; `is_whole`: its class is among `_no_split_modules`.

    `own` are the parameters that it registers itself, `children` its modules, in the order of registration.
    """

    path: str
    size: float
    own: tuple[Module, ...] = ()
    children: tuple[Module, ...] = ()
    is_whole: bool = False
    is_parameter: bool = False

    @property
    def stays_together(self) -> bool:
        """Whether it goes to one device: nothing in it may go to another."""
        return self.is_whole or not self.children

    def holds(self, parameter: str) -> bool:
        """Whether a parameter is in it, or is it."""
        return f"{parameter}.".startswith(f"{self.path}.")

    @cached_property
    def layers(self) -> tuple[Module, ...]:
        """The modules that stay together, itself or those below it (accelerate's `get_max_layer_size`)."""
        if self.stays_together:
            return (self,)
        return tuple(layer for child in self.children for layer in child.layers)

    def every_module(self) -> Iterator[Module]:
        """Itself and the modules below it."""
        yield self
        for child in self.children:
            yield from child.every_module()

    @property
    def leaf_size(self) -> float:
        """Bytes of the parameters that it registers itself."""
        return sum(parameter.size for parameter in self.own)


@record(eq=False)
class ModuleTree:
    """The whole model, and the groups of names that one storage has (`all_tied_weights_keys`)."""

    root: Module
    ties: tuple[frozenset[str], ...]


@lru_cache(maxsize=64)
def module_tree(model: Model, storage: Storage) -> ModuleTree:
    """The modules that hold parameters, with the bytes that transformers counts while it lays them out.

    A weight of bitsandbytes counts its bits without scales, a tied one nothing, buffers (rotary tables of a few
    hundred bytes) are left out. Source: transformers 5.23 integrations/accelerate.py `compute_module_sizes`,
    quantizers/base.py `param_element_size`.
    """
    parameters = _registered(model.all_parameters)
    shared: dict[str, set[str]] = {}
    for parameter in parameters:
        if parameter.tied_to is not None:
            shared.setdefault(parameter.tied_to, {parameter.tied_to}).add(parameter.name)
    sizes = [(parameter.name, _counted_bytes(parameter, storage)) for parameter in parameters]
    last = fact_value("accelerate", "registered_last", model.config.model_type) or ""
    known = _Known(frozenset(_whole(model)), tuple(last.split()))
    return ModuleTree(_module("", sizes, known), tuple(map(frozenset, shared.values())))


@record
class _Known:
    """Paths of modules that stay whole, and names of those that their parents register last, in this order."""

    whole: frozenset[str]
    last: tuple[str, ...]

    def place(self, path: str) -> int:
        name = path.rpartition(".")[2]
        return self.last.index(name) + 1 if name in self.last else 0


def _whole(model: Model) -> Iterator[str]:
    kind = model.config.model_type
    layers = not has_fact("accelerate", "layers_in_pieces", kind)
    towers = not has_fact("accelerate", "towers_in_pieces", kind)
    for block in model.blocks:
        if (layers and block.layer is not None) or (towers and block.tower_layer):
            yield block.name


def _registered(parameters: Iterable[Parameter]) -> list[Parameter]:
    """In the order of registration: a weight that others share comes before them (T5's `shared`)."""
    by_name = {parameter.name: parameter for parameter in parameters}
    ordered: dict[str, Parameter] = {}
    for parameter in by_name.values():
        if parameter.tied_to in by_name:
            ordered.setdefault(parameter.tied_to, by_name[parameter.tied_to])
        ordered.setdefault(parameter.name, parameter)
    return list(ordered.values())


def _counted_bytes(parameter: Parameter, storage: Storage) -> float:
    if parameter.tied_to is not None:
        return 0
    rule = storage.rule_for(parameter)
    if rule is None:
        return parameter.numel * storage.bytes_per_element
    if rule.layout.startswith("bnb"):
        return parameter.numel * rule.bits / 8
    return rule.bytes_for(parameter.shape)


def _module(path: str, sizes: list[tuple[str, float]], known: _Known) -> Module:
    below: dict[str, list[tuple[str, float]]] = {}
    own: list[Module] = []
    start = f"{path}." if path else ""
    for name, size in sizes:
        first, is_deeper, _ = name[len(start) :].partition(".")
        if is_deeper:
            below.setdefault(f"{start}{first}", []).append((name, size))
        else:
            own.append(Module(name, size, is_parameter=True))
    children = tuple(_module(name, below[name], known) for name in sorted(below, key=known.place))
    return Module(path, sum(size for _, size in sizes), tuple(own), children, path in known.whole)
