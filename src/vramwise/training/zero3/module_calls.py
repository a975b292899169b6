"""The modules of a model in the order in which a step enters and leaves them, each with the weights of its own.

DeepSpeed hangs a hook on every module, parameters or none, before and after its forward and its backward pass
(0.19 zero/parameter_offload.py `_register_deepspeed_module`). Lists of modules are never called. A backward pass goes
through them the other way round; a module whose input has no gradient, an embedding, is not left before the pass ends.

Checkpointing without re-entry computes a layer again when backward first asks for a tensor of it, that is inside of its
last module that keeps any, and stops there (torch 2.13 utils/checkpoint.py, early stop); with re-entry it computes the
whole layer again before its backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from enum import Enum

from vramwise.models.blocks import Operation, Parameter
from vramwise.models.model import Model
from vramwise.models.operations.attention import Rotary
from vramwise.models.operations.simple import Embedding
from vramwise.records import record
from vramwise.training.zero3 import BELOW, HEAD, OUTSIDE

DROPOUT = "dropout"


@record
class Weight:
    """A parameter as stage 3 sees it: `key` is that of its storage, `numel` its values, `item` bytes of one.

    `linear`: a linear layer multiplies by it.
    """

    key: str
    numel: int
    item: int
    trains: bool = True
    linear: bool = False


@record(eq=False, frozen=False)
class Module:
    """A module that is called: `block` is its layer's number, HEAD, OUTSIDE or BELOW; `ends`: backward leaves it."""

    path: str
    block: int
    weights: list[Weight] = field(default_factory=list)
    children: list[Module] = field(default_factory=list)
    ends: bool = True
    layer: bool = False
    differentiable: bool = True

    @property
    def saves(self) -> bool:
        """Whether it keeps tensors for its own backward pass."""
        return not self.children and (bool(self.weights) or self.path == DROPOUT)


class Turn(Enum):
    """What happens to a module: its parameters are fetched or released, in a forward or in a backward pass.

    ENTER_AGAIN: in a forward pass that a module's backward asked for.
    """

    ENTER = "enter"
    ENTER_AGAIN = "enter again"
    LEAVE = "leave"
    ENTER_BACKWARD = "enter backward"
    LEAVE_BACKWARD = "leave backward"


@record
class Call:
    """A module is entered or left."""

    turn: Turn
    module: Module


Adapters = Callable[[Parameter], Sequence[Weight]]
"""The weights of the modules that are added beside a parameter's own."""


def module_tree(
    model: Model, weight_of: Callable[[Parameter], Weight], added: Adapters | None = None, *, images: bool = False,
    input_gradients: bool = True,
) -> Module:  # fmt: skip
    """The model's modules, as the names of its parameters and the order of its operations tell them.

    `weight_of` says what a parameter is to this rank. Blocks of other modalities than text run with `images` alone.
    Without `input_gradients` nothing below the first trained weight has a backward pass: no frozen embedding.
    """
    root = Module("", OUTSIDE)
    rotates = model.has(Rotary)
    number = 0
    for block in model.blocks:
        if block.modality != "text" and not images:
            continue
        is_layer = block.layer is not None
        if is_layer and number == 0 and rotates:
            base = block.name.split(".")[0]
            _reach(root, base, OUTSIDE).children.append(Module(f"{base}.rotary_emb", BELOW, differentiable=False))
        place = number if is_layer else OUTSIDE if number else BELOW
        if is_layer:
            _reach(root, block.name, place).layer = True
            number += 1
        for op in block.ops:
            _place(root, block.name, op, place, weight_of, added)
            if isinstance(op, Embedding) and not input_gradients:
                frozen = _reach(root, op.parameters[0].module, place)
                frozen.differentiable = any(weight.trains for weight in frozen.weights)
    return root


def _place(
    root: Module,
    block: str,
    op: Operation,
    place: int,
    weight_of: Callable[[Parameter], Weight],
    added: Adapters | None,
) -> None:
    if not op.parameters:
        if op.is_module:
            path = f"{block}.{op.module}".strip(".") if op.module else ""
            parent = _reach(root, path.rpartition(".")[0], place) if path else _deepest(root, place)
            parent.children.append(Module(path or DROPOUT, place))
        return
    owners: dict[str, list[Parameter]] = {}
    for parameter in op.parameters:
        owners.setdefault(parameter.module, []).append(parameter)
    for owner, parameters in owners.items():
        is_head = "." not in owner and any(p.part == "head" for p in parameters)
        module = _reach(root, owner, HEAD if is_head else place)
        known = {weight.key for weight in module.weights}
        module.weights += [weight for weight in map(weight_of, parameters) if weight.key not in known]
        module.ends = not isinstance(op, Embedding)
        extra = [weight for parameter in parameters for weight in (added(parameter) if added is not None else ())]
        if extra:
            base = Module(f"{owner}.base_layer", module.block, module.weights, ends=module.ends)
            module.children = [base, *(Module(f"{owner}.{weight.key}", module.block, [weight]) for weight in extra)]
            module.weights = extra[
                :1
            ]  # peft's forward reads the dtype of A, which makes it a weight of the wrapper too


def _reach(root: Module, path: str, place: int) -> Module:
    """The module of this path, entered where it is not the one that runs; lists are not entered, their members are."""
    here, names = root, path.split(".") if path else []
    for i in range(len(names)):
        if i + 1 < len(names) and names[i + 1].isdigit():
            continue
        whole = ".".join(names[: i + 1])
        if not here.children or here.children[-1].path != whole:
            holds_others = place == BELOW and i + 1 < len(names)
            here.children.append(Module(whole, OUTSIDE if holds_others else place))
        here = here.children[-1]
    return here


def _deepest(root: Module, place: int) -> Module:
    """Where a module without a name of its own runs: beside the last one of the same block."""
    here = root
    while here.children and here.children[-1].children and (here.block == OUTSIDE or here.block == place):
        here = here.children[-1]
    return here


def calls_of_step(root: Module, *, checkpointing: bool = False, reentrant: bool = False) -> tuple[list[Call], int]:
    """Every call of a step in order, and how many of them are forward's."""
    calls: list[Call] = []
    _forward(root, calls)
    in_forward = len(calls)
    _backward(root, calls, checkpointing and not reentrant, checkpointing and reentrant)
    return calls, in_forward


def _forward(module: Module, calls: list[Call]) -> None:
    calls.append(Call(Turn.ENTER, module))
    for child in module.children:
        _forward(child, calls)
    calls.append(Call(Turn.LEAVE, module))


def _backward(module: Module, calls: list[Call], again_inside: bool, again_before: bool) -> None:
    if module.layer and again_before:
        _forward(module, calls)
    if module.layer and again_inside:
        own: list[Call] = []
        _backward(module, own, False, False)
        at = next((i for i, call in enumerate(own) if call.module.saves), 0)
        calls += [*own[: at + 1], *_until(module, own[at].module), *own[at + 1 :]]
        return
    if not module.differentiable:
        return
    calls.append(Call(Turn.ENTER_BACKWARD, module))
    for child in reversed(module.children):
        _backward(child, calls, again_inside, again_before)
    if module.ends:
        calls.append(Call(Turn.LEAVE_BACKWARD, module))


def _until(layer: Module, last: Module) -> Iterator[Call]:
    """The layer's forward pass up to the module in which it stops."""
    calls: list[Call] = []
    _forward(layer, calls)
    for call in calls:
        yield Call(Turn.ENTER_AGAIN, call.module) if call.turn is Turn.ENTER else call
        if call.module is last:
            return
