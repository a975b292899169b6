"""Decoders that came out of fairseq with scaled embeddings and pre-norm layers: BioGPT and XGLM."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.decoder import lm_head
from vramwise.models.operations.attention import PLAIN, Attention
from vramwise.models.operations.old_attention import XGLM

# Defaults of the configuration classes (transformers 5.23); XGLM's names for the same things are its own.
_DEFAULTS: dict[str, dict[str, object]] = {
    "biogpt": {
        "vocab_size": 42_384, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
        "intermediate_size": 4096, "max_position_embeddings": 1024,
    },
    "xglm": {"vocab_size": 256_008, "d_model": 1024, "num_layers": 24, "attention_heads": 16, "ffn_dim": 4096},
}  # fmt: skip
POSITION_OFFSET = 2
"""Rows of the position tables that no position uses (`BioGptLearnedPositionalEmbedding`, XGLM's buffer of sines)."""
_XGLM_NAMES = {
    "hidden_act": "activation_function", "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}  # fmt: skip
"""BioGPT's names -> those that XGLM's configs have for the same."""


def stem(c: Config) -> str:
    return "biogpt" if c.model_type == "biogpt" else "model"


def embedding(c: Config) -> Block:
    """Scaled token embedding plus learned or sinusoidal positions."""
    b = BlockBuilder(stem(c))
    x = b.scale(b.embedding("embed_tokens", c.vocab_size, c.hidden_size))
    if c.model_type == "biogpt":
        rows = c.size("max_position_embeddings") + POSITION_OFFSET
        x = b.add(x, b.embedding("embed_positions", rows, c.hidden_size, ids="position_ids", shard="replicated"))
    else:
        rows = c.size("max_position_embeddings", default=2048) + POSITION_OFFSET
        b.buffer("embed_positions", "weights", (rows, c.hidden_size))
    return b.build(hidden=b.dropout(x, c.number("hidden_dropout_prob", 0.1)))


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Multi-head attention; XGLM's has no SDPA path and scales the queries before they are split."""
    b.part = "attention"
    heads, width, xglm = c.heads_of(c.hidden_size), c.hidden_size, c.model_type == "xglm"
    k, v, q = (b.linear(x, f"self_attn.{name}_proj", width, bias=True) for name in "kvq")
    q, k, v = (b.heads_first(b.heads(piece, heads)) for piece in (b.scale(q), k, v))
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            dropout=c.number("attention_probs_dropout_prob", 0.1),
            style=XGLM if xglm else PLAIN,
            eager_only=xglm,
        ),
        q,
        k,
        v,
    )
    return b.linear(mixed, "self_attn.out_proj", width, bias=True, shard="row")


def layer(c: Config, index: int) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"{stem(c)}.layers.{index}", layer=index)
    x, after = b.input("hidden", c.hidden_size), c.number("hidden_dropout_prob", 0.1)
    x = b.add(x, b.dropout(attention(b, b.layer_norm(x, "self_attn_layer_norm"), c), after))
    b.part = "mlp"
    h = b.linear(b.layer_norm(x, "final_layer_norm"), "fc1", c.intermediate_size, bias=True)
    h = b.dropout(b.activation(h, c.text("hidden_act", "gelu"), "activation_fn"), c.number("activation_dropout"))
    return b.build(hidden=b.add(x, b.dropout(b.linear(h, "fc2", x.width, bias=True, shard="row"), after)))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    if c.flag("add_cross_attention"):
        raise c.error("add_cross_attention is not described")
    c = c.filled(_DEFAULTS[c.model_type])
    if c.model_type == "xglm":
        others = {name: c.get(own) for name, own in _XGLM_NAMES.items()}
        heads = c.size("num_attention_heads", "attention_heads")
        c = Config({**c.values, **others, "num_attention_heads": heads}, c.model_id)
    head = "output_projection" if c.model_type == "biogpt" else "lm_head"
    words, tied = f"{stem(c)}.embed_tokens", c.flag("tie_word_embeddings", True)
    last = lm_head(c, f"{stem(c)}.layer_norm", tied=tied, layer_norm=True, module=head, embedding=words)
    return (embedding(c), *(layer(c, index) for index in range(c.num_hidden_layers)), last)
