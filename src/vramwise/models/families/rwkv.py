"""RWKV 4: every layer mixes each token with the one before and with a weighted sum of all, in place of attention."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder_ends import lm_head
from vramwise.models.operations.rwkv import MixedWithPast, WeightedSum

CLASS_DEFAULTS: dict[str, object] = {"vocab_size": 50_277, "hidden_size": 4096, "num_hidden_layers": 32}
"""Defaults of `RwkvConfig` (transformers 5.23)."""


def mixed_with_past(b: BlockBuilder, x: Value, module: str, names: tuple[str, ...]) -> tuple[Value, ...]:
    """One mix of each token with the one before for every name."""
    weights = [b.parameter(module, f"time_mix_{name}", (1, 1, x.width)) for name in names]
    return b.op(MixedWithPast(), module, [x], [x.width] * len(names), weights)


def time_mixing(b: BlockBuilder, x: Value, inner: int) -> Value:
    """output(sigmoid(receptance) · weighted sum of values)."""
    module = "attention"
    b.part = "mixer"
    names = ("key", "value", "receptance")
    mixes = mixed_with_past(b, x, module, names)
    inputs = [b.linear(mix, f"{module}.{name}", inner) for mix, name in zip(mixes, names, strict=True)]
    weights = [b.parameter(module, name, (inner,), shard="column") for name in ("time_decay", "time_first")]
    key, value, receptance = inputs
    gate = b.activation(receptance, "sigmoid", module)
    h = b.multiply(gate, b.op(WeightedSum(), module, [key, value], [inner], weights)[0])
    return b.linear(h, f"{module}.output", x.width, shard="row")


def channel_mixing(b: BlockBuilder, x: Value, inner: int) -> Value:
    """sigmoid(receptance) · value(relu(key)²)."""
    module = "feed_forward"
    b.part = "mlp"
    mixed, gate = mixed_with_past(b, x, module, ("key", "receptance"))
    h = b.activation(b.linear(mixed, f"{module}.key", inner), "relu2", module)
    gate = b.activation(b.linear(gate, f"{module}.receptance", x.width, shard="replicated"), "sigmoid", module)
    return b.multiply(gate, b.linear(h, f"{module}.value", x.width, shard="row"))


def layer(c: Config, index: int) -> Block:
    """Two mixings, each after a norm; the first layer has a norm more."""
    b = BlockBuilder(f"rwkv.blocks.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    x = b.layer_norm(x, "pre_ln") if index == 0 else x
    inner = c.size("attention_hidden_size", default=c.hidden_size)
    # Of each sequence: the last token of both mixings, and numerator, denominator and exponent of the sum.
    b.keep(LayerCache("recurrent", conv_state_elements=2 * c.hidden_size, state_elements=3 * inner))
    x = b.add(x, time_mixing(b, b.layer_norm(x, "ln1"), inner))
    width = c.size("intermediate_size", default=4 * c.hidden_size)
    return b.build(hidden=b.add(x, channel_mixing(b, b.layer_norm(x, "ln2"), width)))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(CLASS_DEFAULTS)
    b = BlockBuilder("")
    first = b.build(hidden=b.embedding("rwkv.embeddings", c.vocab_size, c.hidden_size))
    tied = c.flag("tie_word_embeddings")
    last = lm_head(c, "rwkv.ln_out", tied=tied, layer_norm=True, module="head", embedding="rwkv.embeddings")
    return (first, *(layer(c, i) for i in range(c.num_hidden_layers)), last)
