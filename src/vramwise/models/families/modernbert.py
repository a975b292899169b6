"""ModernBERT and its decoder: rotary positions, gated feed-forward, full and windowed layers in turn."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.modernbert_layer import decodes, layer, norm
from vramwise.models.layers.tasks import Task, task_of

CLASS_DEFAULTS = {
    "vocab_size": 50368, "hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 22,
    "num_attention_heads": 12, "local_attention": 128,
}  # fmt: skip
"""Defaults of `ModernBertConfig` and `ModernBertDecoderConfig`."""


def task(c: Config) -> Task:
    """The decoder predicts the next token; the encoder is a masked language model or bare."""
    return "causal-lm" if decodes(c) else task_of(c, "masked-lm")


def loss(c: Config) -> str:
    """The encoder's class widens the logits; the bare model has none."""
    return "" if decodes(c) or task(c) == "none" else "fp32-lm"


def windows(c: Config) -> list[int | None]:
    """The window of each layer, None where attention is full; the class takes half of `local_attention`."""
    every = c.size("global_attn_every_n_layers", default=3)
    default = ["sliding_attention" if i % every else "full_attention" for i in range(c.num_hidden_layers)]
    window = c.size("local_attention") // 2
    return [window if kind == "sliding_attention" else None for kind in c.layer_types() or default]


def embedding(c: Config, root: str) -> Block:
    """Tokens, norm, dropout."""
    b = BlockBuilder(f"{root}embeddings", part="embedding")
    x = norm(b, b.embedding("tok_embeddings", c.vocab_size, c.hidden_size), "norm", c)
    return b.build(hidden=b.dropout(x, c.number("embedding_dropout")))


def head(c: Config, root: str) -> Block:
    """Final norm, and unless the model is bare a dense layer with norm and the output projection."""
    b = BlockBuilder("", part="head")
    x = norm(b, b.input("hidden", c.hidden_size), f"{root}final_norm", c)
    if not root:
        return b.build(hidden=x)
    module = "lm_head" if decodes(c) else "head"
    h = b.linear(x, f"{module}.dense", x.width, bias=c.flag("classifier_bias"), shard="replicated")
    h = norm(b, b.activation(h, c.text("classifier_activation", "gelu"), f"{module}.act"), f"{module}.norm", c)
    tied_to = f"{root}embeddings.tok_embeddings.weight" if c.flag("tie_word_embeddings", True) else None
    bias = c.flag("decoder_bias", True)
    return b.build(logits=b.linear(h, "decoder", c.vocab_size, bias=bias, shard="vocab", tied_to=tied_to))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = config.filled(CLASS_DEFAULTS)
    root = "" if task(c) == "none" else "model."
    layers = (layer(c, i, window, root) for i, window in enumerate(windows(c)))
    return (embedding(c, root), *layers, head(c, root))
