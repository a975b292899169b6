"""LFM 3: short gated convolutions beside full and sliding attention gated by head, norms around every half."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import decoder
from vramwise.models.layers.decoder_design import Design, HeadNorm, LayerKind, sliding_window
from vramwise.models.layers.gated_convolution import gated_convolution
from vramwise.models.layers.layer_kinds import layer_kinds
from vramwise.models.layers.mlp import gated_mlp

# Defaults of Lfm3Config (transformers 5.23).
_DEFAULTS: dict[str, object] = {
    "vocab_size": 128_000, "hidden_size": 2048, "intermediate_size": 7680, "num_hidden_layers": 24,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "conv_L_cache": 7, "sliding_window": 256,
}  # fmt: skip


def design(c: Config) -> Design:
    bias, around = c.flag("attention_bias"), c.flag("use_sandwich_norm", True)
    after = ("post_operator_norm", "post_ffn_norm") if around else (None, None)
    return Design(
        norms=("operator_norm", after[0], "ffn_norm", after[1]), final_norm="model.embedding_norm", qkv_bias=bias,
        output_bias=bias, qk_norm=HeadNorm("heads"), rotary="half_fp32", tied=True,
        gate=("g_proj", "sigmoid_by_head") if c.flag("use_attention_gate", True) else None,
    )  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = Config({**_DEFAULTS, **c.values}, c.model_id)
    window = sliding_window(c)
    pattern = {0: "sliding_attention", 2: "full_attention"}
    default = [pattern.get(i % 4, "conv") if i else "conv" for i in range(c.num_hidden_layers)]
    names = ("w1", "w3", "w2")
    mlp = partial(gated_mlp, width=c.intermediate_size, function="silu", module="feed_forward", names=names)
    kinds = []
    for kind in layer_kinds(c, default, allowed=("conv", "full_attention", "sliding_attention")):
        own = window if kind == "sliding_attention" else None
        mixer = partial(gated_convolution, c=c) if kind == "conv" else None
        kinds.append(LayerKind(own, table=f"fp32 {kind}", attention=mixer, mlp=mlp))
    return decoder.model(c, design(c), kinds)
