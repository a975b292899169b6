"""Kimi K3's residuals: each half of a layer reads a weighted mean of the streams after earlier groups of layers."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.blocks import Block, Parameter, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.undescribed import Undescribed

Mixer = Callable[[BlockBuilder, Value, Config], Value]
_NAME = "residuals from earlier layers"


def _scores(b: BlockBuilder, name: str, width: int) -> list[Parameter]:
    """A norm, and a product of one row that scores each stream."""
    return [
        b.parameter(f"{name}_norm", "weight", (width,), part="norm"),
        b.parameter(f"{name}_proj", "weight", (1, width), part="mixer"),
    ]


def before_mixer(b: BlockBuilder, x: Value, c: Config, mixer: Mixer) -> Value:
    """Attention or a mixer behind the scores of the layer's two halves, where the config asks for them."""
    if c.has("attn_res_block_size"):
        weights = [*_scores(b, "self_attention_res", x.width), *_scores(b, "mlp_res", x.width)]
        x = b.unary(Undescribed(name=_NAME), x, "self_attention_res_proj", weights)
    return mixer(b, x, c)


def before_head(c: Config, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The same before the last norm."""
    if not c.has("attn_res_block_size"):
        return blocks
    b = BlockBuilder("model")
    x = b.input("hidden", c.hidden_size)
    x = b.unary(Undescribed(name=_NAME), x, "output_attn_res_proj", _scores(b, "output_attn_res", x.width))
    return (*blocks[:-1], b.build(hidden=x), blocks[-1])
