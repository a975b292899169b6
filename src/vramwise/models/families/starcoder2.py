"""StarCoder 2: layer norms, biases, a plain MLP, one window for all layers."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design, LayerKind, sliding_window


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    bias, after = c.flag("use_bias", True), c.number("residual_dropout")
    s = Design(
        norm="layer", norm_style="torch", norm_bias=True, qkv_bias=bias, output_bias=bias, mlp_bias=bias, mlp="plain",
        mlp_names=("c_fc", "c_proj"), dropouts=(c.number("embedding_dropout"), after, after), tied=True,
    )  # fmt: skip
    return alike(c, s, LayerKind(sliding_window(c)))
