"""T5, v1.1, Flan-T5, UL2, mT5 and UMT5: an encoder and a decoder with learned relative position biases."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import t5_layers, t5_stack

HEAD = "seq2seq-lm"
CLASS_DEFAULTS: dict[str, object] = {
    "vocab_size": 32_128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8,
    "relative_attention_num_buckets": 32, "dropout_rate": 0.1, "feed_forward_proj": "relu",
}  # fmt: skip
"""Defaults of `T5Config` (transformers 5.23)."""
_MULTILINGUAL = {
    **CLASS_DEFAULTS, "vocab_size": 250_112, "d_ff": 1024, "num_layers": 8, "num_heads": 6,
    "feed_forward_proj": "gated-gelu",
}  # fmt: skip
"""Defaults of `MT5Config` and `UMT5Config`."""


def blocks(c: Config) -> tuple[Block, ...]:
    """Encoder, then decoder and head."""
    return t5_stack.model(c.filled(CLASS_DEFAULTS if c.model_type == "t5" else _MULTILINGUAL), t5_layers.layer)
