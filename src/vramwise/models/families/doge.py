"""Doge: a trained mask added to the scores, residual streams with weights.

Past `keep_window_size` tokens the mask keeps only each query's best keys.
"""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import lm_head, token_embedding
from vramwise.models.layers.decoder_design import sliding_window
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.operations.altered_attention import DynamicMaskAttention, RowsOfHeads
from vramwise.models.operations.latent import Cached
from vramwise.models.operations.streams import ScaleByWeight


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Grouped-query attention with norms of queries and keys; the mask is made from the values."""
    b.part = "attention"
    heads, groups, d, bias = c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.flag("attention_bias")
    q = b.heads(b.linear(x, "self_attn.q_proj", heads * d, bias=bias), heads)
    q = b.heads_first(b.rms_norm(q, "self_attn.q_norm"))
    k = b.heads(b.linear(x, "self_attn.k_proj", groups * d, bias=bias), groups)
    k = b.heads_first(b.rms_norm(k, "self_attn.k_norm"))
    v = b.heads_first(b.heads(b.linear(x, "self_attn.v_proj", groups * d, bias=bias), groups))
    q, k = b.rotary(q, k)
    decay = b.parameter("self_attn", "A", (groups,))
    k, v = b.op(Cached(), "", [k, v], [d, d])
    rows = b.unary(RowsOfHeads(), v, width=groups * d)
    time_step = b.linear(rows, "self_attn.dt_proj", groups, bias=bias, shard="replicated")
    window = sliding_window(c)
    b.keep(LayerCache("sliding" if window else "full", groups, d, d, window=window))
    mixed = b.op(
        DynamicMaskAttention(
            num_heads=heads,
            num_key_value_heads=groups,
            window=window,
            dropout=c.number("attention_dropout"),
            causal=True,
            chunk_size=c.size("keep_window_size", default=2048),
        ),
        "self_attn",
        [q, k, v, time_step],
        [heads * d],
        [decay],
    )[0]
    return b.linear(mixed, "self_attn.o_proj", x.width, bias=bias, shard="row")


def weighted_sum(b: BlockBuilder, x: Value, h: Value, name: str) -> Value:
    """The stream times a weight, plus what the layer's half made."""
    return b.add(b.unary(ScaleByWeight(), x, "", [b.parameter("", name, (x.width,))]), h)


def layer(c: Config, index: int) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x, after = b.input("hidden", c.hidden_size), c.number("hidden_dropout")
    h = b.dropout(attention(b, b.rms_norm(x, "input_layernorm"), c), after)
    x = weighted_sum(b, x, h, "input_residual")
    h = b.rms_norm(x, "post_attention_layernorm")
    h = gated_mlp(b, h, c.intermediate_size, c.text("hidden_act", "silu"), bias=c.flag("mlp_bias"))
    return b.build(hidden=weighted_sum(b, x, b.dropout(h, after), "post_attention_residual"))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    if c.flag("is_moe"):
        raise c.error("is_moe (cross-domain experts) is not described")
    c = with_class_defaults(c)
    layers = (layer(c, index) for index in range(c.num_hidden_layers))
    return (token_embedding(c), *layers, lm_head(c, "model.norm", tied=c.flag("tie_word_embeddings")))
