"""Kernel libraries as overrides: lowerings of their own for classes of operations, and rewrites that make such ones.

A library is one `Kernels` record (`vramwise.kernels`). A run takes the overrides of the libraries in its `Execution`
in place of the lowerings that are registered for those classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

from vramwise.errors import UsageError
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Block, Modality, Operation
from vramwise.records import record

Lowered = Callable[..., Tensor | tuple[Tensor, ...]]
"""(run, operation, *tensors) -> tensor or tensors."""
Rewrite = Callable[[Block], Block]

EVERYWHERE: frozenset[Modality] = frozenset({"text", "image", "audio"})


@record
class Override:
    """What a library runs for one class of operations.

    `replaces`: what that is, in words. `fact`: the library's row in type_facts.csv that says for which types of models,
    and `vision_` before it for which of their towers; empty: for all. `rewrite` joins operations of a block to one of
    the class before the block is lowered.
    """

    kind: type[Operation]
    lowering: Lowered
    replaces: str
    fact: str = ""
    rewrite: Rewrite | None = None
    modalities: frozenset[Modality] = EVERYWHERE


@record
class Kernels:
    """A library of kernels.

    `order`: of two that replace one class of operations, the lower one does. `leaves_out`: libraries whose overrides
    are not taken beside this one. `is_alone`: where it replaces anything, no other is taken: layers of a framework's
    own. `loss`: (run, logits) -> loss in place of the model's class's, where it replaces anything. `like`: a library
    whose rows in type_facts.csv hold for it too. `for_adapters`: it replaces nothing without adapters. `told_by`: the
    package by whose version its rows hold, where they say which classes of that take it up.
    """

    name: str
    overrides: tuple[Override, ...]
    order: int
    source: str
    leaves_out: frozenset[str] = frozenset()
    is_alone: bool = False
    loss: Lowered | None = None
    like: str = ""
    for_adapters: bool = False
    told_by: str = ""

    @property
    def replaces(self) -> str:
        """What it replaces, in words."""
        return ", ".join(dict.fromkeys(override.replaces for override in self.overrides))


@lru_cache(maxsize=256)
def overrides_in(kernels: tuple[Kernels, ...], modality: Modality) -> Mapping[type[Operation], Override]:
    """The override of each class of operations in blocks of a modality.

    Raises UsageError where two libraries of the same order replace one class.
    """
    found: dict[type[Operation], tuple[Kernels, Override]] = {}
    kernels = tuple(library for library in kernels if library.is_alone and library.overrides) or kernels
    left_out = frozenset[str]().union(*(library.leaves_out for library in kernels))
    for library in sorted(kernels, key=lambda library: library.order):
        for override in library.overrides:
            if modality not in override.modalities or library.name in left_out:
                continue
            first, _ = found.setdefault(override.kind, (library, override))
            if first is not library and first.order == library.order:
                both, what = f"{first.name} and {library.name}", f"{override.replaces} ({override.kind.__name__})"
                raise UsageError(f"kernels {both} both replace {what}, and neither says that it comes first")
    return {kind: override for kind, (_, override) in found.items()}


def loss_of(kernels: tuple[Kernels, ...]) -> Lowered | None:
    """The loss that one of the libraries runs, None where the model's class runs its own."""
    return next((library.loss for library in kernels if library.overrides and library.loss is not None), None)


def with_rewrites(block: Block, overrides: Mapping[type[Operation], Override]) -> Block:
    """The block with what the overrides' rewrites join."""
    rewritten = block
    for override in overrides.values():
        rewritten = rewritten if override.rewrite is None else override.rewrite(rewritten)
    return block if rewritten is block else _without_lost_names(rewritten)


def _without_lost_names(block: Block) -> Block:
    """Frames have no names for what is inside of operations that were joined."""
    made = {*block.inputs.values(), *(value for op in block.ops for value in op.outputs)}
    ops = (
        replace(op, inputs=tuple(value for value in op.inputs if value in made)) if op.only_names else op
        for op in block.ops
    )
    return replace(block, ops=tuple(ops))
