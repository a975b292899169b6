"""The first GPT: norms after each half, causal by the layer's own table, no cache in its class."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.old_attention import OPENAI_GPT
from vramwise.models.operations.simple import Embedding

# Defaults of OpenAIGPTConfig (transformers 5.23); its activations have names of their own.
_DEFAULTS = {"vocab_size": 40_478, "n_positions": 512, "n_embd": 768, "n_layer": 12, "n_head": 12}
_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}


def embedding(c: Config) -> Block:
    """Token plus position embedding."""
    b, rows = BlockBuilder("transformer"), c.size("max_position_embeddings")
    tokens = b.embedding("tokens_embed", c.vocab_size, c.hidden_size)
    weight = b.parameter("positions_embed", "weight", (rows, c.hidden_size), part="embedding")
    positions = b.op(Embedding(ids="position_ids", buffer_rows=rows), "positions_embed", [], [c.hidden_size], [weight])[
        0
    ]
    return b.build(hidden=b.dropout(b.add(tokens, positions), c.number("embd_pdrop", 0.1)))


def layer(c: Config, index: int) -> Block:
    """A decoder layer with a norm after attention and after the MLP."""
    b = BlockBuilder(f"transformer.h.{index}", layer=index, part="attention")
    heads, width, after = c.heads_of(c.hidden_size), c.hidden_size, c.number("resid_pdrop", 0.1)
    function = c.text("afn", "gelu")
    if function not in _ACTIVATIONS:
        raise c.error(f"afn: expected one of {', '.join(_ACTIVATIONS)}, got {function!r:.60}")
    x = b.input("hidden", width)
    fused = b.conv1d_linear(x, "attn.c_attn", 3 * width)
    rows = c.size("max_position_embeddings")
    b.buffer("attn", "bias", (1, 1, rows, rows))
    q, k, v = (b.heads_first(b.heads(piece, heads)) for piece in b.split(fused, [width] * 3))
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            dropout=c.number("attn_pdrop", 0.1),
            style=OPENAI_GPT,
            eager_only=True,
            buffer_rows=rows,
        ),
        q,
        k,
        v,
        module="attn",
        cache=LayerCache("none"),
    )
    h = b.add(x, b.dropout(b.conv1d_linear(mixed, "attn.c_proj", width, shard="row"), after))
    x = b.layer_norm(h, "ln_1")
    b.part = "mlp"
    h = b.activation(b.conv1d_linear(x, "mlp.c_fc", 4 * width), _ACTIVATIONS[function], "mlp.act")
    h = b.dropout(b.conv1d_linear(h, "mlp.c_proj", width, shard="row"), after)
    return b.build(hidden=b.layer_norm(b.add(x, h), "ln_2"))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS)
    b = BlockBuilder("")
    tied_to = "transformer.tokens_embed.weight" if c.flag("tie_word_embeddings", True) else None
    x = b.input("hidden", c.hidden_size)
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    return (embedding(c), *(layer(c, index) for index in range(c.num_hidden_layers)), b.build(logits=logits))
