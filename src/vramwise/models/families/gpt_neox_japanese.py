"""GPT-NeoX Japanese: pre-norm layers one half after the other, a bias on attention in the last layer only."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.decoder import lm_head
from vramwise.models.layers.decoder_attention import rotary_columns
from vramwise.models.layers.decoder_design import Design
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.old_attention import NEOX_JAPANESE
from vramwise.models.operations.simple import AddBias

# Defaults of GPTNeoXJapaneseConfig (transformers 5.23).
_DEFAULTS = {
    "vocab_size": 32_000, "hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 32,
    "intermediate_multiple_size": 4,
}  # fmt: skip
_NAME = "gpt_neox_japanese"


def attention(b: BlockBuilder, x: Value, c: Config, *, biased: bool) -> Value:
    """Multi-head attention from one product; the class has no SDPA path."""
    b.part = "attention"
    heads, d, columns = c.num_attention_heads, c.head_dim, rotary_columns(c, Design())
    fused = b.heads(b.linear(x, "attention.query_key_value", 3 * x.width), heads)
    q, k, v = b.split(b.heads_first(fused), [d] * 3)
    q, k = b.rotary(q, k, rotary_dim=columns, style="half_joined" if columns == d else "half")
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            style=NEOX_JAPANESE,
            dropout=c.number("attention_dropout", 0.1),
            eager_only=True,
        ),
        q,
        k,
        v,
        module="attention",
    )
    h = b.linear(mixed, "attention.dense", x.width, shard="row")
    return b.unary(AddBias(), h, "attention", [b.parameter("attention", "dense_bias", (x.width,))]) if biased else h


def layer(c: Config, index: int) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"{_NAME}.layers.{index}", layer=index)
    x, after = b.input("hidden", c.hidden_size), c.number("hidden_dropout")
    last = index == c.num_hidden_layers - 1
    x = b.add(x, b.dropout(attention(b, b.layer_norm(x, "input_layernorm"), c, biased=last), after))
    b.part = "mlp"
    width = c.size("intermediate_multiple_size") * c.hidden_size
    h = b.linear(b.layer_norm(x, "post_attention_layernorm"), "mlp.dense_h_to_4h", width)
    h = b.linear(b.activation(h, c.text("hidden_act", "gelu"), "mlp.act"), "mlp.dense_4h_to_h", x.width, shard="row")
    return b.build(hidden=b.add(x, b.dropout(h, after)))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = Config({**c.filled(_DEFAULTS).values, "head_dim": None}, c.model_id)
    b = BlockBuilder(_NAME)
    first = b.build(hidden=b.embedding("embed_in", c.vocab_size, c.hidden_size))
    tied = c.flag("tie_word_embeddings", True)
    last = lm_head(
        c, f"{_NAME}.final_layer_norm", tied=tied, layer_norm=True, module="embed_out", embedding=f"{_NAME}.embed_in"
    )
    return (first, *(layer(c, index) for index in range(c.num_hidden_layers)), last)
