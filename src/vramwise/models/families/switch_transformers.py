"""Switch Transformers: T5 whose feed-forwards are partly experts."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.t5 import CLASS_DEFAULTS
from vramwise.models.layers import t5_layers, t5_stack
from vramwise.models.layers.capped_experts import capped_experts

HEAD = "seq2seq-lm"
_DEFAULTS = {
    **CLASS_DEFAULTS, "d_model": 768, "num_layers": 12, "num_heads": 12, "num_decoder_layers": 12,
    "num_sparse_encoder_layers": 3, "num_sparse_decoder_layers": 3, "num_experts": 8,
}  # fmt: skip
"""Defaults of `SwitchTransformersConfig` (transformers 5.23)."""


def is_sparse(c: Config, stack: t5_stack.Stack, index: int) -> bool:
    """Every n-th layer of a stack; where n is not stated, the configuration class works it out of the number of
    sparse layers."""
    count = c.size(f"num_sparse_{stack.name}_layers", least=0)
    worked_out = stack.num_layers // count if count else stack.num_layers
    step = c.size(f"{stack.name}_sparse_step", default=worked_out, least=0)
    return step > 0 and (step == 1 or index % step == 1)


def feed_forward(b: BlockBuilder, x: Value, last: str, *, c: Config, sparse: bool) -> Value:
    """Experts, or two linear layers with an activation between them."""
    module, dropout = f"{last}.mlp", c.number("dropout_rate")
    if sparse:
        return b.dropout(capped_experts(b, x, c, module), dropout)
    b.part = "mlp"
    h = b.activation(b.linear(x, f"{module}.wi", c.size("d_ff")), c.text("dense_act_fn", "relu"), f"{module}.act")
    return b.dropout(b.linear(b.dropout(h, dropout), f"{module}.wo", x.width, shard="row"), dropout)


def layer(c: Config, stack: t5_stack.Stack, index: int) -> Block:
    return t5_layers.layer(c, stack, index, mlp=partial(feed_forward, c=c, sparse=is_sparse(c, stack, index)))


def counted_as(c: Config) -> str:
    """What depends on the data."""
    most = c.size("expert_capacity", default=64)
    return (
        f"experts take at most {most} tokens of a sequence each: counted as if they dropped none, which is the most; "
        "what they keep for backward is less the more they drop"
    )


def blocks(c: Config) -> tuple[Block, ...]:
    """Encoder, then decoder and head."""
    return t5_stack.model(c.filled(_DEFAULTS), layer)
