"""CTRL: a pre-norm decoder on fixed positions."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.multi_head_attention import multi_head_attention
from vramwise.models.operations.attention import PLAIN

CLASS_DEFAULTS = {"vocab_size": 246534, "n_embd": 1280, "dff": 8192, "n_layer": 48, "n_head": 16}
"""Defaults of `CTRLConfig`."""


def embedding(c: Config) -> Block:
    """Tokens, scaled, plus a buffer of positions, of which backward needs nothing."""
    b = BlockBuilder("transformer")
    x = b.scale(b.embedding("w", c.vocab_size, c.hidden_size))
    b.buffer("", "pos_encoding", (c.size("n_positions", default=256), c.hidden_size), "fp32")
    return b.build(hidden=b.dropout(x, c.number("embd_pdrop", 0.1)))


def layer(c: Config, index: int) -> Block:
    """Attention and feed-forward with norms before them."""
    b = BlockBuilder(f"transformer.h.{index}", layer=index, part="attention")
    width, dropout, module = c.hidden_size, c.number("resid_pdrop", 0.1), "multi_head_attention"
    x = b.input("hidden", width)
    names = (f"{module}.Wq", f"{module}.Wk", f"{module}.Wv", f"{module}.dense")
    h = multi_head_attention(b, b.layer_norm(x, "layernorm1"), c, names, module=module, style=PLAIN)
    x = b.add(x, b.dropout(h, dropout))
    b.part = "mlp"
    h = b.activation(b.linear(b.layer_norm(x, "layernorm2"), "ffn.0", c.size("dff"), bias=True), "relu", "ffn.1")
    return b.build(hidden=b.add(x, b.dropout(b.linear(h, "ffn.2", width, bias=True, shard="row"), dropout)))


def head(c: Config) -> Block:
    """Final norm and output projection with a bias."""
    b = BlockBuilder("", part="head")
    x = b.layer_norm(b.input("hidden", c.hidden_size), "transformer.layernorm")
    tied_to = "transformer.w.weight" if c.flag("tie_word_embeddings", True) else None
    return b.build(logits=b.linear(x, "lm_head", c.vocab_size, bias=True, shard="vocab", tied_to=tied_to))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = config.filled(CLASS_DEFAULTS)
    return (embedding(c), *(layer(c, i) for i in range(c.num_hidden_layers)), head(c))
