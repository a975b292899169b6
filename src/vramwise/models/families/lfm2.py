"""LFM 2: layers of short gated convolutions and of attention, dense or with experts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.decoder import model
from vramwise.models.layers.decoder_attention import grouped_attention
from vramwise.models.layers.decoder_design import Design, LayerKind, Piece
from vramwise.models.layers.gated_convolution import gated_convolution
from vramwise.models.layers.layer_kinds import layer_kinds
from vramwise.models.layers.mixture import experts
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.layers.routed_experts import routed_experts

_SHARED: dict[str, object] = {
    "vocab_size": 65_536, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "conv_L_cache": 3,
}  # fmt: skip
_DEFAULTS: dict[str, dict[str, object]] = {
    "lfm2": {
        **_SHARED, "hidden_size": 2560, "intermediate_size": 12_288, "block_multiple_of": 256,
        "block_auto_adjust_ff_dim": True,
    },
    "lfm2_moe": {
        **_SHARED, "hidden_size": 2048, "intermediate_size": 7168, "moe_intermediate_size": 1792,
        "num_dense_layers": 2, "num_experts_per_tok": 4, "num_experts": 32, "use_expert_bias": True,
        "norm_topk_prob": True,
    },
}  # fmt: skip
"""Defaults of the configuration classes (transformers 5.23)."""


def mlp_width(c: Config) -> int:
    """LFM 2 takes two thirds of the width that the config names, times a factor, in whole multiples."""
    width = c.size("block_ff_dim", "intermediate_size")
    if not c.flag("block_auto_adjust_ff_dim"):
        return width
    step = c.size("block_multiple_of")
    width = int(2 * width / 3)
    # An explicit null of the factor leaves the two thirds as they are.
    if "block_ffn_dim_multiplier" in c.values and not c.has("block_ffn_dim_multiplier"):
        return width
    return step * -(-int(c.number("block_ffn_dim_multiplier", 1.0) * width) // step)


def feed_forward(c: Config, index: int) -> Piece:
    """An MLP, in the later layers of LFM 2 MoE routed experts."""
    if c.model_type != "lfm2_moe" or index < c.size("num_dense_layers", least=0):
        names = ("w1", "w3", "w2")
        return partial(gated_mlp, width=mlp_width(c), function="silu", module="feed_forward", names=names)
    e = experts(
        c, None, keys=("num_experts",), routing="lfm2_moe", normalized=c.flag("norm_topk_prob"),
        router="feed_forward.gate", module="feed_forward.experts",
    )  # fmt: skip
    return partial(routed_experts, e=replace(e, function="silu"), corrected=c.flag("use_expert_bias"))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    given = c.values
    c = c.filled(_DEFAULTS[c.model_type])
    if "block_ffn_dim_multiplier" in given and given["block_ffn_dim_multiplier"] is None:
        c = Config({**c.values, "block_ffn_dim_multiplier": None}, c.model_id)
    layers = range(c.num_hidden_layers)
    attending = c.items("full_attn_idxs") or ([] if c.has("full_attn_idxs") else layers)
    default = ["full_attention" if i in attending else "conv" for i in layers]
    attention = partial(grouped_attention, c=c, norms=("q_layernorm", "k_layernorm"), output="out_proj")
    mixers: dict[str, Piece] = {"conv": partial(gated_convolution, c=c), "full_attention": attention}
    names = layer_kinds(c, default, allowed=tuple(mixers))
    kinds = [LayerKind(attention=mixers[name], mlp=feed_forward(c, i)) for i, name in enumerate(names)]
    tied = c.flag("tie_embedding", c.flag("tie_word_embeddings", True))
    s = Design(norms=("operator_norm", None, "ffn_norm", None), final_norm="model.embedding_norm")
    return model(Config({**c.values, "tie_word_embeddings": tied}, c.model_id), s, kinds)
