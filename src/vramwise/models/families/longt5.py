"""LongT5: T5 whose encoder attends to a neighbourhood."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.t5 import CLASS_DEFAULTS
from vramwise.models.layers import t5_layers, t5_stack
from vramwise.models.layers.near_attention import near_attention

HEAD = "seq2seq-lm"
_DEFAULTS = {**CLASS_DEFAULTS, "encoder_attention_type": "local", "local_radius": 127, "global_block_size": 16}
"""Defaults of `LongT5Config` (transformers 5.23)."""


def layer(c: Config, stack: t5_stack.Stack, index: int) -> Block:
    near = None if stack.is_decoder else partial(near_attention, c=c, index=index)
    return t5_layers.layer(c, stack, index, near=near)


def blocks(c: Config) -> tuple[Block, ...]:
    """Encoder, then decoder and head."""
    return t5_stack.model(c.filled(_DEFAULTS), layer)
