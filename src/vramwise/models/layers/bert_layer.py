"""A layer of BERT and its relatives: attention and feed-forward, each with its residual and norm."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.encoder_design import Design
from vramwise.models.layers.language_adapters import language_adapters
from vramwise.models.operations.attention import PLAIN, Attention, Rotary
from vramwise.models.operations.simple import Hold


def attention(b: BlockBuilder, x: Value, c: Config, d: Design, module: str = "attention") -> Value:
    """Multi-head attention over all positions, or causal where the config says `is_decoder`, and its projection."""
    heads, bias = c.heads_of(x.width), c.flag("use_bias", True)
    q, k, v = (
        b.heads_first(b.heads(b.linear(x, f"{module}.self.{name}", x.width, bias=bias), heads))
        for name in ("query", "key", "value")
    )
    if d.positions == "rotary":
        turned = [q, k, v] if c.flag("rotary_value") else [q, k]
        turned = list(
            b.op(Rotary(rotary_dim=q.width, style="pairs", table="parameter"), "", turned, [q.width] * len(turned))
        )
        q, k, v = (*turned, v)[:3]
    causal = c.flag("is_decoder")
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            causal=causal,
            style=PLAIN,
            dropout=c.number("attention_probs_dropout_prob", 0.1),
            eager_only=d.written_out,
        ),
        q,
        k,
        v,
        module=f"{module}.self",
        cache="own" if causal else None,
    )
    return b.linear(mixed, f"{module}.output.dense", x.width, bias=True, shard="row")


def attention_half(b: BlockBuilder, x: Value, c: Config, d: Design, module: str = "attention") -> Value:
    """Attention with its residual and norm."""
    h = b.layer_norm(x, d.pre_norms[0].replace("attention", module)) if d.pre_norms else x
    h = b.dropout(attention(b, h, c, d, module), c.number("hidden_dropout_prob", 0.1))
    x = b.add(h, x)
    return x if d.pre_norms else b.layer_norm(x, f"{module}.output.LayerNorm")


def cross_attention(b: BlockBuilder, x: Value, c: Config, d: Design) -> Value:
    """The parameters of a decoder's cross-attention, which runs only beside an encoder."""
    aside = BlockBuilder(b.name, b.layer, b.part)
    attention_half(aside, aside.value(x.width), c, d, "crossattention")
    return b.unary(Hold(), x, "crossattention", [p for op in aside.ops for p in op.parameters])


def layer(c: Config, d: Design, index: int, root: str) -> Block:
    """Attention, then feed-forward; norms before or after them."""
    b = BlockBuilder(f"{root}encoder.layer.{index}", layer=index, part="attention")
    x = attention_half(b, b.input("hidden", c.hidden_size), c, d)
    if c.flag("add_cross_attention"):
        x = cross_attention(b, x, c, d)
    b.part = "mlp"
    h = b.layer_norm(x, d.pre_norms[1]) if d.pre_norms else x
    h = b.linear(h, "intermediate.dense", c.intermediate_size, bias=True)
    h = b.activation(h, c.text("hidden_act", "gelu"), "intermediate.intermediate_act_fn")
    h = b.linear(h, "output.dense", x.width, bias=True, shard="row")
    x = b.add(b.dropout(h, c.number("hidden_dropout_prob", 0.1)) if d.dropout_after_mlp else h, x)
    if d.language_adapters:
        x = language_adapters(b, x, c)
    return b.build(hidden=x if d.pre_norms else b.layer_norm(x, "output.LayerNorm"))
