"""Blocks of which the weights are known and what runs between them is not described."""

from __future__ import annotations

from collections.abc import Iterable

from vramwise.models.blocks import Block, Modality, Part
from vramwise.models.builder import BlockBuilder
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.tower_design import Weight, layer_norm, with_bias


def known_weights(
    name: str, weights: Iterable[Weight], what: str, *, part: Part = "vision", modality: Modality = "image",
    layer: int | None = None, frozen: frozenset[str] = frozenset(),
) -> Block:  # fmt: skip
    """A block of weights below `name`; training what it holds is refused with `what` in the reason."""
    b = BlockBuilder(name, layer=layer, part=part, modality=modality)
    parameters = [b.parameter("", leaf, shape, frozen=leaf in frozen) for leaf, shape in weights]
    b.op(Undescribed(name=what), "", [], [], parameters)
    return b.build()


def product(name: str, width: int, given: int, bias: bool = True) -> list[Weight]:
    """A linear layer's weight, and its bias where it has one."""
    return list(with_bias(name, width, given))[: 1 + bias]


def products(names: Iterable[str], width: int, given: int, bias: bool = True) -> list[Weight]:
    """Several linear layers of one shape."""
    return [weight for name in names for weight in product(name, width, given, bias)]


def norms(names: Iterable[str], width: int) -> list[Weight]:
    """Several layer norms of one width."""
    return [weight for name in names for weight in layer_norm(name, width)]
