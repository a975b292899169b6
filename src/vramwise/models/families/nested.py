"""A language model inside another model: the blocks of its own family under other parameter names."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from vramwise.errors import UnsupportedModelError, clipped
from vramwise.models.blocks import Block, Parameter
from vramwise.models.config import Config
from vramwise.models.registry import family_module
from vramwise.records import replace


def language_model(c: Config, rename: Callable[[str], str]) -> tuple[Block, ...]:
    """The blocks of a nested config by its `model_type`; `rename` makes the outer name of each parameter.

    Raises UnsupportedModelError.
    """
    described_in = family_module(c.model_type)
    if described_in is None:
        name = clipped(c.model_type)
        raise UnsupportedModelError(
            f'{c.model_id or "model"}: its language model\'s model_type "{name}" is not described'
        )
    blocks = import_module(described_in).blocks(c)
    return tuple(renamed(block, rename) for block in blocks)


def renamed(block: Block, rename: Callable[[str], str]) -> Block:
    """The block with other names of parameters and buffers."""

    def parameter(p: Parameter) -> Parameter:
        return replace(p, name=rename(p.name), tied_to=rename(p.tied_to) if p.tied_to else None)

    ops = tuple(replace(op, parameters=tuple(map(parameter, op.parameters))) for op in block.ops)
    buffers = tuple(one._replace(name=rename(one.name)) for one in block.buffers)
    return replace(block, name=rename(block.name) if block.name else "", ops=ops, buffers=buffers)


def under(prefix: str) -> Callable[[str], str]:
    """Every name behind a prefix."""
    return lambda name: f"{prefix}.{name}"


def inside(module: str) -> Callable[[str], str]:
    """`model` becomes another module; the head keeps its name, as in transformers' conditional-generation classes."""
    return lambda name: f"{module}{name.removeprefix('model')}" if name.startswith("model.") else name
