"""DeBERTa 1 and 2: encoders whose attention compares contents and distances apart."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.deberta_distances import convolution, distances, first
from vramwise.models.layers.deberta_layer import layer, norm
from vramwise.models.layers.encoder_design import Design, Head
from vramwise.models.layers.encoder_head import language_model_head
from vramwise.models.layers.tasks import Task, task_of
from vramwise.models.operations.deberta import TimesMask
from vramwise.models.operations.simple import AddBias, Embedding, Linear

_V1 = {"vocab_size": 50265, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
       "intermediate_size": 3072, "max_position_embeddings": 512}  # fmt: skip
_V2 = {"vocab_size": 128100, "hidden_size": 1536, "num_hidden_layers": 24, "num_attention_heads": 24,
       "intermediate_size": 6144, "max_position_embeddings": 512}  # fmt: skip


def task(c: Config) -> Task:
    """The head that the config asks for."""
    return task_of(c, "masked-lm")


def embedding(c: Config, root: str) -> Block:
    """Tokens, positions and segments as far as the config has them, norm, dropout."""
    b = BlockBuilder(f"{root}embeddings", part="embedding")
    width, positions = c.size("embedding_size", default=c.hidden_size), c.size("max_position_embeddings")
    x = b.embedding("word_embeddings", c.vocab_size, width)
    if c.flag("position_biased_input", True):
        table = b.parameter("position_embeddings", "weight", (positions, width))
        positioned = Embedding(ids="position_ids", buffer_rows=positions)
        x = b.add(x, b.op(positioned, "position_embeddings", [], [width], [table])[0])
    segments = c.size("type_vocab_size", default=0, least=0)
    if segments:
        table = b.parameter("token_type_embeddings", "weight", (segments, width))
        x = b.add(x, b.op(Embedding(ids="made_token_type_ids"), "token_type_embeddings", [], [width], [table])[0])
    if width != c.hidden_size:
        x = b.linear(x, "embed_proj", c.hidden_size, shard="replicated")
    x = b.unary(TimesMask(), norm(b, x, "LayerNorm", c))
    x = b.dropout(x, c.number("hidden_dropout_prob", 0.1))
    return b.build(hidden=x, embedded=x)


def legacy_head(c: Config, root: str) -> Block:
    """BERT's head."""
    return language_model_head(c, Design("deberta", head=Head()), root)


def head(c: Config, root: str) -> Block:
    """A dense layer and norm, then the product with the token embedding itself and a bias."""
    b = BlockBuilder("", part="head")
    x, module = b.input("hidden", c.hidden_size), "lm_predictions.lm_head"
    h = b.linear(x, f"{module}.dense", x.width, bias=True, shard="replicated")
    h = b.layer_norm(b.activation(h, c.text("hidden_act", "gelu"), module), f"{module}.LayerNorm")
    table = f"{root}embeddings.word_embeddings"
    weight = b.parameter(table, "weight", (c.vocab_size, x.width), shard="vocab", part="embedding")
    logits = b.unary(Linear(), h, module, [weight], c.vocab_size)
    bias = b.parameter(module, "bias", (c.vocab_size,), shard="vocab")
    return b.build(logits=b.unary(AddBias(), logits, module, [bias]))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, head unless the model is bare."""
    c = config.filled(_V1 if first(config) else _V2)
    bare = task(c) == "none"
    root = "" if bare else "deberta."
    last = () if bare else (legacy_head(c, root) if c.flag("legacy", True) else head(c, root),)
    layers = [layer(c, root, i) for i in range(c.num_hidden_layers)]
    return (embedding(c, root), *distances(c, root), *layers[:1], *convolution(c, root), *layers[1:], *last)
