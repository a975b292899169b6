"""GPT-BigCode (SantaCoder, StarCoder): GPT-2 with linear layers and one key-value head for all queries."""

from __future__ import annotations

from vramwise.models.blocks import Block, Buffer, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.gpt2_ends import embedding, head
from vramwise.models.operations.attention import Attention
from vramwise.records import replace

# Defaults of GPTBigCodeConfig (transformers 5.23).
_DEFAULTS = {"vocab_size": 50_257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}


def projections(b: BlockBuilder, x: Value, c: Config) -> tuple[Value, ...]:
    """q, k and v heads of one fused projection: each head's three side by side, or all of q before the shared k, v."""
    heads, d = c.num_attention_heads, c.head_dim
    if not c.flag("multi_query", True):
        fused = b.heads_first(b.heads(b.linear(x, "attn.c_attn", 3 * x.width, bias=True), heads))
        return b.split(fused, [d] * 3)
    pieces = b.split(b.linear(x, "attn.c_attn", x.width + 2 * d, bias=True), [x.width, d, d])
    return tuple(b.heads_first(b.heads(piece, n)) for piece, n in zip(pieces, (heads, 1, 1), strict=True))


def layer(c: Config, index: int) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"transformer.h.{index}", layer=index, part="attention")
    heads, width, after = c.heads_of(c.hidden_size), c.hidden_size, c.number("resid_pdrop", 0.1)
    x = b.input("hidden", width)
    q, k, v = projections(b, b.layer_norm(x, "ln_1"), c)
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=1 if c.flag("multi_query", True) else heads,
            dropout=c.number("attn_pdrop", 0.1),
        ),
        q,
        k,
        v,
        module="attn",
    )
    mixed = b.dropout(b.linear(mixed, "attn.c_proj", width, bias=True, shard="row"), after)
    x = b.add(x, mixed)
    b.part = "mlp"
    h = b.linear(b.layer_norm(x, "ln_2"), "mlp.c_fc", c.size("n_inner", default=4 * width), bias=True)
    h = b.activation(h, c.text("activation_function", "gelu_pytorch_tanh"), "mlp.act")
    x = b.add(x, b.dropout(b.linear(h, "mlp.c_proj", width, bias=True, shard="row"), after))
    b.still_named(mixed)
    return b.build(hidden=x)


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    if c.flag("add_cross_attention"):
        raise c.error("add_cross_attention is not described")
    c = Config({**c.filled(_DEFAULTS).values, "head_dim": None}, c.model_id)
    rows = c.size("max_position_embeddings")
    seen = Buffer("transformer.bias", (rows, rows), "bool", None)
    first = replace(embedding(c, rows, c.number("embd_pdrop", 0.1)), buffers=(seen,))
    return (first, *(layer(c, i) for i in range(c.num_hidden_layers)), head(c))
