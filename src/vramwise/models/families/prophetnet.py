"""ProphetNet: an encoder-decoder whose decoder predicts the next `ngram` tokens at once.

Parameters are exact. Of the activations, those of the further predicting streams (the decoder runs on ngram + 1 times
the tokens) and of the relative position biases are not counted.
"""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.tasks import Task, task_of

CLASS_DEFAULTS: dict[str, Any] = {
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


def not_counted(c: Config) -> str:
    """What an estimate says that it leaves out."""
    return "activations of the streams that predict further tokens, and of relative positions"


def loss(c: Config) -> str:
    """The class does not shift labels, and widens the logits."""
    return "fp32-lm"


def tied(c: Config) -> str | None:
    return _SHARED if c.flag("tie_word_embeddings", True) else None


def embedding(c: Config, stack: str, alone: bool) -> Block:
    """Tokens and positions, norm, dropout; the decoder adds its streams' embeddings."""
    b = BlockBuilder(f"prophetnet.{stack}", part="embedding")
    width, prefix = c.hidden_size, "" if alone else f"{stack}_"
    table = b.parameter("word_embeddings", "weight", (c.vocab_size, width), shard="vocab", tied_to=tied(c))
    (x,) = b.op("embedding", "word_embeddings", [], [width], [table], ids=f"{prefix}input_ids")
    table = b.parameter("position_embeddings", "weight", (c.size("max_position_embeddings"), width))
    ids = "encoder_position_rows" if stack == "encoder" else "position_rows"
    x = b.add(x, b.op("embedding", "position_embeddings", [], [width], [table], ids=ids)[0])
    if stack == "decoder":
        streams = b.parameter("ngram_embeddings", "weight", (c.size("ngram"), width))
        x = b.unary("hold", x, "ngram_embeddings", [streams])
    x = b.dropout(b.layer_norm(x, "embeddings_layer_norm"), c.number("dropout"))
    return b.build(hidden=x)


def attention(b: BlockBuilder, c: Config, stack: str, module: str, x: Value, source: Value) -> Value:
    """Attention with its residual and norm; the decoder's own has a projection for relative positions."""
    heads, width, own = c.size(f"num_{stack}_attention_heads"), x.width, module == "self_attn" and stack == "decoder"
    if width % heads:
        raise c.error(f"num_{stack}_attention_heads ({heads}) does not divide hidden_size ({width})")
    q, k, v = (
        b.heads_first(b.heads(b.linear(value, f"{module}.{name}_proj", width, bias=True), heads))
        for name, value in (("query", x), ("key", source), ("value", source))
    )
    if own:
        rows = c.size("num_buckets") * heads
        shapes = (("weight", (rows, width)), ("bias", (rows,)))
        relative = f"{module}.relative_pos_embeddings"
        q = b.unary("hold", q, relative, [b.parameter(relative, leaf, shape) for leaf, shape in shapes])
    kind = LayerCache("full" if own else "cross", heads, width // heads, width // heads)
    mixed = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=heads, module=module, causal=own, style="plain",
        dropout=c.number("attention_dropout"), cache=kind if stack == "decoder" else None, eager_only=True,
    )  # fmt: skip
    h = b.dropout(b.linear(mixed, f"{module}.out_proj", width, bias=True, shard="row"), c.number("dropout"))
    return b.layer_norm(b.add(h, x), f"{module}_layer_norm")


def layer(c: Config, stack: str, index: int, before: int, alone: bool) -> Block:
    """Self-attention, in the decoder cross-attention, feed-forward; norms come after."""
    b = BlockBuilder(f"prophetnet.{stack}.layers.{index}", layer=before + index, part="attention")
    x = b.input("hidden", c.hidden_size)
    x = attention(b, c, stack, "self_attn", x, x)
    if stack == "decoder" and not alone:
        x = attention(b, c, stack, "cross_attn", x, b.input("encoder", x.width))
    elif stack == "decoder" and c.flag("add_cross_attention", True):
        aside = BlockBuilder(b.name, b.layer, b.part)
        attention(aside, c, stack, "cross_attn", aside.value(x.width), aside.value(x.width))
        x = b.unary("hold", x, "cross_attn", [p for op in aside.ops for p in op.parameters])
    b.part, module = "mlp", "feed_forward"
    h = b.linear(x, f"{module}.intermediate", c.size(f"{stack}_ffn_dim"), bias=True)
    h = b.dropout(b.activation(h, c.text("activation_function"), module), c.number("activation_dropout"))
    h = b.dropout(b.linear(h, f"{module}.output", x.width, bias=True, shard="row"), c.number("dropout"))
    return b.build(hidden=b.layer_norm(b.add(h, x), f"{module}_layer_norm"))


def stack_of(c: Config, stack: str, before: int, alone: bool) -> tuple[Block, ...]:
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
    x = last.unary("hold", last.input("hidden", c.hidden_size), "", [table])
    head = last.build(logits=last.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied(c)))
    return (*encoder, *([between] if between else []), *decoder, head)
