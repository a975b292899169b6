"""GPT-2: learned positions, fused qkv in transposed linear layers, ungated MLP."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.gpt2_ends import embedding, head
from vramwise.models.operations.attention import GPT2, GPT2_UPCAST, Attention


def layer(c: Config, index: int) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"transformer.h.{index}", layer=index, part="attention")
    heads, width = c.heads_of(c.hidden_size), c.hidden_size
    residual_dropout = c.number("resid_pdrop", 0.1)
    x = b.input("hidden", width)
    fused = b.conv1d_linear(b.layer_norm(x, "ln_1"), "attn.c_attn", 3 * width)
    q, k, v = (b.heads_first(b.heads(piece, heads)) for piece in b.split(fused, [width] * 3))
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            dropout=c.number("attn_pdrop", 0.1),
            style=GPT2_UPCAST if c.flag("reorder_and_upcast_attn") else GPT2,
        ),
        q,
        k,
        v,
        module="attn",
    )
    mixed = b.dropout(b.conv1d_linear(mixed, "attn.c_proj", width, shard="row"), residual_dropout)
    x = b.add(x, mixed)
    b.part = "mlp"
    h = b.conv1d_linear(b.layer_norm(x, "ln_2"), "mlp.c_fc", c.size("n_inner", default=4 * width))
    h = b.activation(h, c.text("activation_function", "gelu_new"), "mlp.act")
    h = b.dropout(b.conv1d_linear(h, "mlp.c_proj", width, shard="row"), residual_dropout)
    x = b.add(x, h)
    b.still_named(mixed)
    return b.build(hidden=x)


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    first = embedding(c, c.size("max_position_embeddings", default=1024), c.number("embd_pdrop", 0.1))
    return (first, *(layer(c, i) for i in range(c.num_hidden_layers)), head(c))
