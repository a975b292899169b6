"""XLM: a post-norm encoder (or, with `causal`, a decoder without a cache) on learned positions."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.multi_head_attention import multi_head_attention
from vramwise.models.operations.encoders import XLM, TimesWholeMask
from vramwise.models.operations.simple import Embedding, Hold

CLASS_DEFAULTS = {"vocab_size": 30145, "emb_dim": 2048, "n_layers": 12, "n_heads": 16, "max_position_embeddings": 512}
"""Defaults of `XLMConfig`."""


def loss(c: Config) -> str:
    """The class does not shift labels."""
    return "masked-lm"


def width_of(c: Config) -> int:
    return c.size("emb_dim")


def embedding(c: Config) -> Block:
    """Tokens, positions and where there are several the language; norm, dropout, padding set to zero."""
    b = BlockBuilder("transformer", part="embedding")
    width, positions = width_of(c), c.size("max_position_embeddings")
    x = b.embedding("embeddings", c.vocab_size, width)
    table = b.parameter("position_embeddings", "weight", (positions, width))
    x = b.add(
        x, b.op(Embedding(ids="position_ids", buffer_rows=positions), "position_embeddings", [], [width], [table])[0]
    )
    languages = c.size("n_langs", default=1)
    if languages > 1 and c.flag("use_lang_emb", True):  # added only where a batch names its languages
        x = b.unary(Hold(), x, "lang_embeddings", [b.parameter("lang_embeddings", "weight", (languages, width))])
    x = b.dropout(b.layer_norm(x, "layer_norm_emb"), c.number("dropout", 0.1))
    return b.build(hidden=b.unary(TimesWholeMask(), x))


def attention(b: BlockBuilder, x: Value, c: Config, module: str) -> Value:
    """Multi-head attention whose queries are scaled before the product."""
    return multi_head_attention(
        b, x, c, (f"{module}.q_lin", f"{module}.k_lin", f"{module}.v_lin", f"{module}.out_lin"), scaled=True,
        module=module, causal=c.flag("causal"), style=XLM, dropout=c.number("attention_dropout", 0.1), cache=None,
        eager_only=True,
    )  # fmt: skip


def layer(c: Config, index: int) -> Block:
    """A post-norm layer; its modules stand in lists of their own."""
    b = BlockBuilder("transformer", layer=index, part="attention")
    dropout = c.number("dropout", 0.1)
    x = b.input("hidden", width_of(c))
    x = b.layer_norm(b.add(x, b.dropout(attention(b, x, c, f"attentions.{index}"), dropout)), f"layer_norm1.{index}")
    b.part = "mlp"
    function = "gelu" if c.flag("gelu_activation", True) else "relu"
    h = b.activation(b.linear(x, f"ffns.{index}.lin1", 4 * x.width, bias=True), function, f"ffns.{index}")
    h = b.dropout(b.linear(h, f"ffns.{index}.lin2", x.width, bias=True, shard="row"), dropout)
    return b.build(hidden=b.unary(TimesWholeMask(), b.layer_norm(b.add(x, h), f"layer_norm2.{index}")))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, output projection with a bias."""
    c = config.filled(CLASS_DEFAULTS)
    if c.flag("asm"):
        raise c.error("asm: the adaptive softmax is not described")
    b = BlockBuilder("", part="head")
    tied_to = "transformer.embeddings.weight" if c.flag("tie_word_embeddings", True) else None
    x, module = b.input("hidden", width_of(c)), "pred_layer.proj"
    head = b.build(logits=b.linear(x, module, c.vocab_size, bias=True, shard="vocab", tied_to=tied_to))
    return (embedding(c), *(layer(c, i) for i in range(c.num_hidden_layers)), head)
