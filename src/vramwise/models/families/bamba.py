"""Bamba: layers of Mamba 2 and of attention, each with an MLP after it."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mamba2_mixer
from vramwise.models.layers.decoder import model
from vramwise.models.layers.decoder_attention import grouped_attention, rotary_columns
from vramwise.models.layers.decoder_design import Design, LayerKind, Piece
from vramwise.models.layers.mlp import gated_mlp

# Defaults of BambaConfig (transformers 5.23).
_DEFAULTS: dict[str, object] = {
    "vocab_size": 128_000, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_act": "silu", **mamba2_mixer.DEFAULTS,
}  # fmt: skip


def attention(c: Config) -> Piece:
    """Grouped-query attention that turns half of each head."""
    columns, bias = rotary_columns(c, Design(rotary_share=0.5)), c.flag("attention_bias")
    style = "half_joined" if columns == c.head_dim else "half"
    return partial(grouped_attention, c=c, bias=bias, turned=style, columns=columns, output_bias=bias)


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS)
    attending = c.items("attn_layer_indices") or []
    inner = int(c.number("mamba_expand") * c.hidden_size)
    width, function, bias = c.intermediate_size, c.text("hidden_act"), c.flag("mlp_bias")
    mlp = partial(gated_mlp, width=width, function=function, module="feed_forward", bias=bias)
    kinds = []
    for index in range(c.num_hidden_layers):
        mixer = partial(mamba2_mixer.mixer, s=mamba2_mixer.sizes(c, inner), module="mamba")
        kinds.append(LayerKind(attention=attention(c) if index in attending else mixer, mlp=mlp))
    s = Design(norms=("input_layernorm", None, "pre_ff_layernorm", None), final_norm="model.final_layernorm")
    return model(c, s, kinds)
