"""ProphetNet: an encoder-decoder whose decoder predicts the next `ngram` tokens at once.

The decoder runs on ngram + 1 times the tokens: the text, and a stream for each token that comes next.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.ngram_streams import Stack, layer
from vramwise.models.layers.tasks import Task, task_of
from vramwise.models.operations.ngram_streams import OnlyPredictingStreams, PredictingStreams
from vramwise.models.operations.simple import Embedding, Hold

CLASS_DEFAULTS: dict[str, object] = {
    "vocab_size": 30522, "hidden_size": 1024, "encoder_ffn_dim": 4096, "num_encoder_layers": 12,
    "num_encoder_attention_heads": 16, "decoder_ffn_dim": 4096, "num_decoder_layers": 12,
    "num_decoder_attention_heads": 16, "max_position_embeddings": 512, "ngram": 2, "num_buckets": 32, "dropout": 0.1,
    "attention_dropout": 0.1, "activation_dropout": 0.1, "activation_function": "gelu",
}  # fmt: skip
"""Defaults of `ProphetNetConfig`."""
_SHARED = "prophetnet.word_embeddings.weight"


def task(c: Config) -> Task:
    """The head that the config asks for, the projection where it names the bare model."""
    found = task_of(c, "seq2seq-lm")
    return "seq2seq-lm" if found == "none" else found


def loss(c: Config) -> str:
    """The class does not shift labels, and widens the logits of every stream."""
    return "smoothed-ngram-lm" if c.number("eps", 0.0) > 0 else "ngram-lm"


def tied(c: Config) -> str | None:
    return _SHARED if c.flag("tie_word_embeddings", True) else None


def embedding(c: Config, stack: Stack, alone: bool) -> Block:
    """Tokens and positions, norm, dropout; the decoder makes its streams."""
    b = BlockBuilder(f"prophetnet.{stack}", part="embedding")
    width, prefix = c.hidden_size, "" if alone else f"{stack}_"
    table = b.parameter("word_embeddings", "weight", (c.vocab_size, width), shard="vocab", tied_to=tied(c))
    (x,) = b.op(Embedding(ids=f"{prefix}input_ids"), "word_embeddings", [], [width], [table])
    table = b.parameter("position_embeddings", "weight", (c.size("max_position_embeddings"), width))
    if stack == "decoder":
        vectors = b.parameter("ngram_embeddings", "weight", (c.size("ngram"), width))
        x = b.unary(PredictingStreams(ngram=c.size("ngram")), x, "", [table, vectors])
    else:
        x = b.add(x, b.op(Embedding(ids="encoder_position_rows"), "position_embeddings", [], [width], [table])[0])
    x = b.dropout(b.layer_norm(x, "embeddings_layer_norm"), c.number("dropout"))
    return b.build(hidden=x)


def stack_of(c: Config, stack: Stack, before: int, alone: bool) -> tuple[Block, ...]:
    count = c.size(f"num_{stack}_layers")
    return (embedding(c, stack, alone), *(layer(c, stack, i, before, alone) for i in range(count)))


def blocks(config: Config) -> tuple[Block, ...]:
    """Encoder, decoder and head, or the decoder alone; the tables of tokens share one storage."""
    c = config.filled(CLASS_DEFAULTS)
    alone = task(config) == "causal-lm"
    b, encoder = BlockBuilder(""), () if alone else stack_of(c, "encoder", 0, alone)
    table = b.parameter("prophetnet.word_embeddings", "weight", (c.vocab_size, c.hidden_size), part="embedding",
                        shard="vocab")  # fmt: skip
    end = b.input("hidden", c.hidden_size)
    between = b.build(encoder=end) if not alone else None
    decoder = stack_of(c, "decoder", 0 if alone else c.size("num_encoder_layers"), alone)
    last = BlockBuilder("")
    x = last.unary(Hold(), last.input("hidden", c.hidden_size), "", [table])
    x = last.unary(OnlyPredictingStreams(ngram=c.size("ngram")), x)
    head = last.build(logits=last.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied(c)))
    return (*encoder, *([between] if between else []), *decoder, head)
