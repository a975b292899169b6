"""Hunyuan V1: norms of queries and keys after they are turned."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design, HeadNorm
from vramwise.models.lowering import Lowering
from vramwise.models.operations.attention import ROTATIONS, rotate_half


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    bias, names = c.flag("attention_bias"), ("query_layernorm", "key_layernorm")
    # With positions of several axes (Hunyuan VL) heads turn in fp32.
    rotary = "half_copied" if c.has("mrope_section") else "half"
    s = Design(qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("turned", names=names), rotary=rotary)
    return alike(c, s)


@ROTATIONS.named("half_copied")
def _rotate_half_copied(run: Lowering, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As `rotate_half` on fp32 copies of tables, which each layer makes, and of values, cast back (Hunyuan VL)."""
    return run.tape.to(rotate_half(run, run.tape.to(x, "fp32"), cos, sin), x.dtype)
