"""BERT and RoBERTa: encoders with learned positions, segments, post-norm layers and a masked-language-model head.

A config whose `architectures` names the bare model (`BertModel`, `RobertaModel`) is described with its pooler and
without a head, as `AutoModel` builds it; any other config as the masked language model, which has no pooler.
"""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config

HEAD = "masked-lm"


def is_bare(c: Config) -> bool:
    """Whether the config asks for the model without a head."""
    return bool({"BertModel", "RobertaModel"} & set(map(str, c.items("architectures") or [])))


def embedding(c: Config, prefix: str) -> Block:
    """Token, segment and position embeddings, norm, dropout."""
    b = BlockBuilder(f"{prefix}embeddings", part="embedding")
    width = c.size("hidden_size", default=768)
    counted = "counted_" if c.model_type == "roberta" else ""
    positions = c.size("max_position_embeddings", default=512)
    x = b.embedding("word_embeddings", c.size("vocab_size", default=30522), width)
    segments = c.size("type_vocab_size", default=2)
    x = b.add(x, b.embedding("token_type_embeddings", segments, width, f"{counted}token_type_ids", shard="replicated"))
    table = b.parameter("position_embeddings", "weight", (positions, width))
    (p,) = b.op(
        "embedding", "position_embeddings", [], [width], [table], ids=f"{counted}position_ids",
        buffer_rows=None if counted else positions,
    )  # fmt: skip
    x = b.layer_norm(b.add(x, p), "LayerNorm")
    return b.build(hidden=b.dropout(x, c.number("hidden_dropout_prob", 0.1)))


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Multi-head attention over all positions, or causal where the config says `is_decoder`."""
    heads = c.num_attention_heads
    if x.width % heads:
        raise c.error(f"num_attention_heads ({heads}) does not divide hidden_size ({x.width})")
    q, k, v = (
        b.heads_first(b.heads(b.linear(x, f"attention.self.{name}", x.width, bias=True), heads))
        for name in ("query", "key", "value")
    )
    causal = c.flag("is_decoder")
    return b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=heads, module="attention.self", causal=causal, style="plain",
        dropout=c.number("attention_probs_dropout_prob", 0.1), cache="own" if causal else None,
    )  # fmt: skip


def layer(c: Config, prefix: str, index: int) -> Block:
    """A post-norm layer."""
    b = BlockBuilder(f"{prefix}encoder.layer.{index}", layer=index, part="attention")
    dropout, width = c.number("hidden_dropout_prob", 0.1), c.hidden_size
    x = b.input("hidden", width)
    h = b.linear(attention(b, x, c), "attention.output.dense", width, bias=True, shard="row")
    x = b.layer_norm(b.add(b.dropout(h, dropout), x), "attention.output.LayerNorm")
    b.part = "mlp"
    h = b.linear(x, "intermediate.dense", c.size("intermediate_size", default=3072), bias=True)
    h = b.activation(h, c.text("hidden_act", "gelu"), "intermediate.intermediate_act_fn")
    h = b.dropout(b.linear(h, "output.dense", width, bias=True, shard="row"), dropout)
    return b.build(hidden=b.layer_norm(b.add(h, x), "output.LayerNorm"))


def pooler(c: Config) -> Block:
    """The bare model's last block: tanh of a projection of the first token."""
    b = BlockBuilder("pooler", part="head")
    first = b.unary("first_token", b.input("hidden", c.hidden_size))
    h = b.linear(first, "dense", c.hidden_size, bias=True)
    return b.build(pooled=b.activation(h, "tanh", "activation"))


def masked_lm_head(c: Config, prefix: str) -> Block:
    """Transform and the projection whose weight is the token embedding's; its bias has two names."""
    roberta = c.model_type == "roberta"
    b = BlockBuilder("lm_head" if roberta else "cls.predictions", part="head")
    tied = c.flag("tie_word_embeddings", True)
    vocabulary = c.vocab_size
    x = b.input("hidden", c.hidden_size)
    h = b.linear(x, "dense" if roberta else "transform.dense", c.hidden_size, bias=True, shard="replicated")
    h = b.activation(h, "gelu" if roberta else c.text("hidden_act", "gelu"), "transform.transform_act_fn")
    h = b.layer_norm(h, "layer_norm" if roberta else "transform.LayerNorm")
    h = b.unary("hold", h, "", [b.parameter("", "bias", (vocabulary,), shard="vocab")])
    weight = b.parameter(
        "decoder", "weight", (vocabulary, h.width), shard="vocab", is_linear=True,
        tied_to=f"{prefix}embeddings.word_embeddings.weight" if tied else None,
    )  # fmt: skip
    bias = b.parameter("decoder", "bias", (vocabulary,), shard="vocab", tied_to=f"{b.name}.bias" if tied else None)
    return b.build(logits=b.unary("linear", h, "decoder", [weight, bias], vocabulary))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, then the masked-language-model head or the pooler."""
    if c.flag("add_cross_attention"):
        raise c.error("add_cross_attention is not described")
    prefix = "" if is_bare(c) else f"{c.model_type}."
    last = pooler(c) if is_bare(c) else masked_lm_head(c, prefix)
    return (embedding(c, prefix), *(layer(c, prefix, i) for i in range(c.num_hidden_layers)), last)
