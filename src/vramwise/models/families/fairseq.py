"""Decoders that came out of fairseq with scaled embeddings and pre-norm layers: BioGPT and XGLM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config

# Defaults of the configuration classes (transformers 5.23); XGLM's names for the same things are its own.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "biogpt": {
        "vocab_size": 42_384, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
        "intermediate_size": 4096, "max_position_embeddings": 1024,
    },
    "xglm": {"vocab_size": 256_008, "d_model": 1024, "num_layers": 24, "attention_heads": 16, "ffn_dim": 4096},
}  # fmt: skip
POSITION_OFFSET = 2
"""Rows of BioGPT's position table that no position uses (`BioGptLearnedPositionalEmbedding`)."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names of modules and of the config's keys; XGLM computes its positions and writes out its attention."""

    stem: str
    head: str
    function: str
    dropout: str
    attention_dropout: str
    learned_positions: bool
    style: str


_NAMES = {
    "biogpt": Names(
        "biogpt",
        "output_projection",
        "hidden_act",
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        True,
        "plain",
    ),
    "xglm": Names("model", "lm_head", "activation_function", "dropout", "attention_dropout", False, "xglm"),
}


def embedding(c: Config, n: Names) -> Block:
    """Scaled token embedding plus learned or sinusoidal positions."""
    b = BlockBuilder(n.stem)
    x = b.scale(b.embedding("embed_tokens", c.vocab_size, c.hidden_size))
    if n.learned_positions:
        rows = c.size("max_position_embeddings") + POSITION_OFFSET
        x = b.add(x, b.embedding("embed_positions", rows, c.hidden_size, ids="position_ids", shard="replicated"))
    return b.build(hidden=b.dropout(x, c.number(n.dropout, 0.1)))


def attention(b: BlockBuilder, x: Value, c: Config, n: Names) -> Value:
    """Multi-head attention; XGLM's has no SDPA path and scales the queries before they are split."""
    b.part = "attention"
    heads, width = c.num_attention_heads, c.hidden_size
    if width % heads:
        raise c.error(f"num_attention_heads ({heads}) does not divide hidden_size ({width})")
    k, v, q = (b.linear(x, f"self_attn.{name}_proj", width, bias=True) for name in "kvq")
    q, k, v = (b.heads_first(b.heads(piece, heads)) for piece in (b.scale(q), k, v))
    mixed = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=heads, dropout=c.number(n.attention_dropout, 0.1), style=n.style,
        eager_only=n.style == "xglm",
    )  # fmt: skip
    return b.linear(mixed, "self_attn.out_proj", width, bias=True, shard="row")


def layer(c: Config, n: Names, index: int) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"{n.stem}.layers.{index}", layer=index)
    x, after = b.input("hidden", c.hidden_size), c.number(n.dropout, 0.1)
    x = b.add(x, b.dropout(attention(b, b.layer_norm(x, "self_attn_layer_norm"), c, n), after))
    b.part = "mlp"
    h = b.linear(b.layer_norm(x, "final_layer_norm"), "fc1", c.intermediate_size, bias=True)
    h = b.dropout(b.activation(h, c.text(n.function, "gelu"), "activation_fn"), c.number("activation_dropout"))
    return b.build(hidden=b.add(x, b.dropout(b.linear(h, "fc2", x.width, bias=True, shard="row"), after)))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    if c.flag("add_cross_attention"):
        raise c.error("add_cross_attention is not described")
    n = _NAMES[c.model_type]
    c = c.filled(_DEFAULTS[c.model_type])
    heads = c.size("num_attention_heads", "attention_heads")
    c = Config({**c.values, "num_attention_heads": heads}, c.model_id)
    b = BlockBuilder("")
    x = b.layer_norm(b.input("hidden", c.hidden_size), f"{n.stem}.layer_norm")
    tied_to = f"{n.stem}.embed_tokens.weight" if c.flag("tie_word_embeddings", True) else None
    logits = b.linear(x, n.head, c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    layers = (layer(c, n, index) for index in range(c.num_hidden_layers))
    return (embedding(c, n), *layers, b.build(logits=logits))
