"""ESM 1b and 2: encoders of proteins, pre-norm, with learned or rotary positions.

With `architectures` naming the bare model it has a pooler and no head; with the classifier of sequences its scores; any
other is the masked language model. Folding (ESMFold) and decoders are not described.
"""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.encoder_head import classifier, classifies, pooler
from vramwise.models.layers.tasks import Task, task_of
from vramwise.models.operations.attention import PLAIN, Attention
from vramwise.models.operations.esm import ErfGelu, TimesAttentionMask, TokenDropout
from vramwise.models.operations.simple import AddBias, Embedding, Hold

CLASS_DEFAULTS: dict[str, object] = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 1026,
    "position_embedding_type": "absolute",
}  # fmt: skip
"""Defaults of `EsmConfig` (transformers 5.23), which has none for the vocabulary."""
_ROOT = "esm."


def task(c: Config) -> Task:
    """The head that the config asks for."""
    return "none" if classifies(c) else task_of(c, "masked-lm")


def embedding(c: Config, root: str) -> Block:
    """Tokens, learned positions where it has them, a norm where the config asks for one."""
    b = BlockBuilder(f"{root}embeddings", part="embedding")
    x = b.embedding("word_embeddings", c.vocab_size, c.hidden_size)
    if c.flag("token_dropout"):
        x = b.unary(TokenDropout(), x)
    if c.text("position_embedding_type") == "absolute":
        table = b.parameter("position_embeddings", "weight", (c.size("max_position_embeddings"), x.width))
        ids = Embedding(ids="counted_position_ids")
        x = b.add(x, b.op(ids, "position_embeddings", [], [x.width], [table])[0])
    if c.flag("emb_layer_norm_before"):
        x = b.layer_norm(x, "layer_norm")
    return b.build(hidden=b.unary(TimesAttentionMask(), x))


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Queries are scaled before they are turned."""
    heads = c.heads_of(x.width)
    q, k, v = (
        b.heads_first(b.heads(b.linear(x, f"attention.self.{name}", x.width, bias=True), heads))
        for name in ("query", "key", "value")
    )
    q = b.scale(q)
    if c.text("position_embedding_type") == "rotary":
        q, k = b.rotary(q, k, style="half_widened")
    core = Attention(
        num_heads=heads, num_key_value_heads=heads, causal=False, style=PLAIN,
        dropout=c.number("attention_probs_dropout_prob"),
    )  # fmt: skip
    mixed = b.attention(core, q, k, v, module="attention.self", cache=None)
    return b.linear(mixed, "attention.output.dense", x.width, bias=True, shard="row")


def layer(c: Config, root: str, index: int) -> Block:
    """A pre-norm layer."""
    b = BlockBuilder(f"{root}encoder.layer.{index}", layer=index, part="attention")
    x, dropout = b.input("hidden", c.hidden_size), c.number("hidden_dropout_prob")
    x = b.add(b.dropout(attention(b, b.layer_norm(x, "attention.LayerNorm"), c), dropout), x)
    b.part = "mlp"
    h = b.linear(b.layer_norm(x, "LayerNorm"), "intermediate.dense", c.intermediate_size, bias=True)
    h = b.linear(b.unary(ErfGelu(), h), "output.dense", x.width, bias=True, shard="row")
    return b.build(hidden=b.add(b.dropout(h, dropout), x))


def closing(c: Config, root: str) -> Block:
    """The norm behind the layers; what predicts contacts of attention weights is held and not run."""
    b = BlockBuilder(root.rstrip("."))
    x = b.layer_norm(b.input("hidden", c.hidden_size), "encoder.emb_layer_norm_after")
    maps = c.num_hidden_layers * c.num_attention_heads
    held = [b.parameter("contact_head.regression", leaf, shape, part="head")
            for leaf, shape in (("weight", (1, maps)), ("bias", (1,)))]  # fmt: skip
    return b.build(hidden=b.unary(Hold(), x, "contact_head", held))


def language_model_head(c: Config) -> Block:
    """A dense layer, the expression, a norm, and the product with the tokens' table; a bias of its own."""
    b = BlockBuilder("lm_head", part="head")
    x = b.linear(b.input("hidden", c.hidden_size), "dense", c.hidden_size, bias=True, shard="replicated")
    x = b.layer_norm(b.unary(ErfGelu(), x), "layer_norm")
    table = f"{_ROOT}embeddings.word_embeddings.weight" if c.flag("tie_word_embeddings", True) else None
    logits = b.linear(x, "decoder", c.vocab_size, shard="vocab", tied_to=table)
    return b.build(logits=b.unary(AddBias(), logits, "", [b.parameter("", "bias", (c.vocab_size,), shard="vocab")]))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, norm, then the head, or the pooler of the bare model."""
    c = config.filled(CLASS_DEFAULTS)
    for key in ("is_folding_model", "is_decoder", "add_cross_attention"):
        if c.flag(key):
            raise c.error(f"{key}: of ESM only the encoder of proteins is described")
    bare = task(c) == "none" and not classifies(c)
    root = "" if bare else _ROOT
    inner = (embedding(c, root), *(layer(c, root, i) for i in range(c.num_hidden_layers)), closing(c, root))
    if classifies(c):
        return (*inner, classifier(c, root))
    return (*inner, pooler(c, "pooler.dense") if bare else language_model_head(c))
