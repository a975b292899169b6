"""OLMo hybrid: three layers of gated DeltaNet to one of attention, whose norms come after it."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers import decoder
from vramwise.models.layers.decoder_attention import attention
from vramwise.models.layers.decoder_design import Design, HeadNorm, LayerKind
from vramwise.models.layers.delta_net import mixer_of_pieces, sizes
from vramwise.models.layers.layer_kinds import layer_kinds
from vramwise.models.layers.mlp import gated_mlp

CLASS_DEFAULTS: dict[str, object] = {
    "vocab_size": 100_352, "hidden_size": 3840, "intermediate_size": 11_008, "num_hidden_layers": 32,
    "num_attention_heads": 30, "hidden_act": "silu", "linear_conv_kernel_dim": 4,
}  # fmt: skip
"""Defaults of `OlmoHybridConfig` (transformers 5.23)."""

NORM = "fp32-product"


def completed(c: Config) -> Config:
    """The config with its class's defaults, of which the linear layers' sizes follow from the others."""
    c = c.filled(CLASS_DEFAULTS)
    heads = c.size("linear_num_key_heads", default=c.num_attention_heads)
    key = c.size("linear_key_head_dim", default=int(0.75 * c.hidden_size / heads))
    own = {
        "linear_num_key_heads": heads, "linear_num_value_heads": c.num_attention_heads, "linear_key_head_dim": key,
        "linear_value_head_dim": 2 * key,
    }  # fmt: skip
    return c.filled(own)


def kinds(c: Config) -> list[str]:
    """Every fourth layer attends; a model of fewer layers attends in its last."""
    default = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(c.num_hidden_layers)]
    if "full_attention" not in default:
        default[-1] = "full_attention"
    return layer_kinds(c, default, allowed=("linear_attention", "full_attention"))


def layer(c: Config, index: int, kind: str) -> Block:
    """Linear layers have their norms before, attention and its MLP after."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x, function = b.input("hidden", c.hidden_size), c.text("hidden_act")
    if kind == "linear_attention":
        h = b.rms_norm(x, "input_layernorm", style=NORM)
        x = b.add(x, mixer_of_pieces(b, h, sizes(c), doubled=c.flag("linear_allow_neg_eigval", True)))
        h = b.rms_norm(x, "post_attention_layernorm", style=NORM)
        return b.build(hidden=b.add(x, gated_mlp(b, h, c.intermediate_size, function)))
    bias = c.flag("attention_bias")
    turned = c.has("rope_parameters") and (c.table("rope_parameters") or Config({})).has("rope_theta")
    s = Design(qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("projection", style=NORM), rotary="half_fp32",
               rotary_table="fp32")  # fmt: skip
    h = attention(b, x, c, s, LayerKind(turned=turned))
    x = b.add(x, b.rms_norm(h, "post_attention_layernorm", style=NORM))
    h = gated_mlp(b, x, c.intermediate_size, function)
    return b.build(hidden=b.add(x, b.rms_norm(h, "post_feedforward_layernorm", style=NORM)))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = completed(c)
    first, last = decoder.model(c, Design(norm_style=NORM), [])
    return (first, *(layer(c, i, kind) for i, kind in enumerate(kinds(c))), last)
