"""Blocks of which the weights are known and what runs between them is not described."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from vramwise.models.blocks import Block, Modality, Part
from vramwise.models.builder import BlockBuilder
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.tower_design import Weight, layer_norm, with_bias


class ProductWeight(NamedTuple):
    """The weight of a linear layer, which quantizers of such layers take."""

    name: str
    shape: tuple[int, ...]


def known_weights(
    name: str, weights: Iterable[Weight], what: str, *, part: Part = "vision", modality: Modality = "image",
    layer: int | None = None, frozen: frozenset[str] = frozenset(), tied: Mapping[str, str] = MappingProxyType({}),
    buffers: Iterable[Weight] = (), buffer_dtype: str = "",
) -> Block:  # fmt: skip
    """A block of weights below `name`; training what it holds is refused with `what` in the reason.

    `tied`: weights that are others', by the whole name of these. `buffers`: large tensors beside the parameters.
    """
    b = BlockBuilder(name, layer=layer, part=part, modality=modality)
    parameters = [
        b.parameter(
            "", weight[0], weight[1], frozen=weight[0] in frozen, tied_to=tied.get(weight[0]),
            is_linear=isinstance(weight, ProductWeight),
        )
        for weight in weights
    ]  # fmt: skip
    b.op(Undescribed(name=what), "", [], [], parameters)
    for leaf, shape in buffers:
        b.buffer("", leaf, shape, buffer_dtype)
    return b.build()


def product(name: str, width: int, given: int, bias: bool = True) -> list[Weight]:
    """A linear layer's weight, and its bias where it has one."""
    weight, offset = with_bias(name, width, given)
    return [ProductWeight(*weight), *([offset] if bias else [])]


def products(names: Iterable[str], width: int, given: int, bias: bool = True) -> list[Weight]:
    """Several linear layers of one shape."""
    return [weight for name in names for weight in product(name, width, given, bias)]


def inside(name: str, weights: Iterable[Weight]) -> list[Weight]:
    """The same weights below a module."""
    found: list[Weight] = []
    for weight in weights:
        named = f"{name}.{weight[0]}"
        found.append(ProductWeight(named, weight[1]) if isinstance(weight, ProductWeight) else (named, weight[1]))
    return found


def norms(names: Iterable[str], width: int) -> list[Weight]:
    """Several layer norms of one width."""
    return [weight for name in names for weight in layer_norm(name, width)]
