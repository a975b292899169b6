"""A layer of DeBERTa, whose attention compares contents and distances apart."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.deberta_distances import compared, first, projected_distances
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.deberta import DEBERTA, DEBERTA_V2, BiasedQkv


def norm(b: BlockBuilder, x: Value, module: str, c: Config) -> Value:
    """Version 1 writes its layer norm out."""
    return b.layer_norm(x, module, style="deberta" if first(c) else "torch")


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Attention and its projection; version 1 has one product for queries, keys and values, and two biases."""
    heads, module = c.heads_of(x.width), "attention.self"
    if first(c):
        fused = b.linear(x, f"{module}.in_proj", 3 * x.width)
        biases = [b.parameter(module, name, (x.width,), shard="column") for name in ("q_bias", "v_bias")]
        q, k, v = b.op(BiasedQkv(num_heads=heads), module, [fused], [x.width // heads] * 3, biases)
    else:
        q, k, v = (
            b.heads_first(b.heads(b.linear(x, f"{module}.{name}_proj", x.width, bias=True), heads))
            for name in ("query", "key", "value")
        )
    others = projected_distances(b, c)
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            causal=False,
            style=DEBERTA if first(c) else DEBERTA_V2,
            eager_only=True,
            compared=tuple(kind for kind in ("c2p", "p2c") if others and kind in compared(c)),
            dropout=c.number("attention_probs_dropout_prob", 0.1),
        ),
        q,
        k,
        v,
        module=module,
        cache=None,
        others=others,
    )
    return b.linear(mixed, "attention.output.dense", x.width, bias=True, shard="row")


def layer(c: Config, root: str, index: int) -> Block:
    """A post-norm layer."""
    b = BlockBuilder(f"{root}encoder.layer.{index}", layer=index, part="attention")
    dropout = c.number("hidden_dropout_prob", 0.1)
    x = b.input("hidden", c.hidden_size)
    x = norm(b, b.add(b.dropout(attention(b, x, c), dropout), x), "attention.output.LayerNorm", c)
    b.part = "mlp"
    h = b.linear(x, "intermediate.dense", c.intermediate_size, bias=True)
    h = b.activation(h, c.text("hidden_act", "gelu"), "intermediate.intermediate_act_fn")
    h = b.dropout(b.linear(h, "output.dense", x.width, bias=True, shard="row"), dropout)
    return b.build(hidden=norm(b, b.add(h, x), "output.LayerNorm", c))
