"""OLMoE: queries and keys normed whole, and all of them clipped where asked for; experts in every layer."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.mixture import Mixture, experts
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.experts import Clip

_DEFAULTS = {"num_experts_per_tok": 8, "intermediate_size": 2048}
"""Defaults of `OlmoeConfig` (transformers 5.23)."""


def clipped_attention(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """Norms over the whole width of q and k, and values clipped in place where the config says so."""
    b.part = "attention"
    heads, groups, d, bias = c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.flag("attention_bias")
    q = b.rms_norm(b.linear(x, "self_attn.q_proj", heads * d, bias=bias), "self_attn.q_norm")
    k = b.rms_norm(b.linear(x, "self_attn.k_proj", groups * d, bias=bias), "self_attn.k_norm")
    v = b.linear(x, "self_attn.v_proj", groups * d, bias=bias)
    if c.has("clip_qkv"):
        q, k, v = (b.unary(Clip(), part) for part in (q, k, v))
    q, k, v = (b.heads_first(b.heads(part, count)) for part, count in ((q, heads), (k, groups), (v, groups)))
    q, k = b.rotary(q, k)
    mixed = b.attention(
        Attention(num_heads=heads, num_key_value_heads=groups, dropout=c.number("attention_dropout")), q, k, v
    )
    return b.linear(mixed, "self_attn.o_proj", x.width, bias=bias, shard="row")


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, balancing loss, head."""
    c, layers = c.filled(_DEFAULTS), c.num_hidden_layers
    keys, normalized = ("num_experts", "num_local_experts"), c.flag("norm_topk_prob")
    m = Mixture(experts(c, 64, keys=keys, routing="qwen", normalized=normalized), balanced=True)
    kind = LayerKind(attention=partial(clipped_attention, c=c))
    return mixture.model(c, Design(), m, [True] * layers, [kind] * layers)
