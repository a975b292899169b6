"""A layer of ModernBERT and its decoder: attention with rotary positions, full or windowed, gated feed-forward."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.encoders import UnboundQkv


def decodes(c: Config) -> bool:
    return c.model_type == "modernbert-decoder"


def norm(b: BlockBuilder, x: Value, module: str, c: Config) -> Value:
    return b.layer_norm(x, module, bias=c.flag("norm_bias"))


def attention(b: BlockBuilder, x: Value, c: Config, window: int | None) -> Value:
    """Multi-head attention; the encoder's is one product and looks both ways."""
    heads, bias, dropout = c.heads_of(x.width), c.flag("attention_bias"), c.number("attention_dropout")
    if decodes(c):
        q, k, v = (b.heads(b.linear(x, f"attn.{name}_proj", x.width, bias=bias), heads) for name in "qkv")
    else:
        fused = b.linear(x, "attn.Wqkv", 3 * x.width, bias=bias)
        q, k, v = b.op(UnboundQkv(num_heads=heads), "attn", [fused], [x.width // heads] * 3)
    q, k, v = (b.heads_first(piece) for piece in (q, k, v))
    table = ("rows " if decodes(c) else "") + ("sliding" if window else "full")
    q, k = b.rotary(q, k, style="half_widened", table=table)
    mixed = b.attention(
        Attention(num_heads=heads, num_key_value_heads=heads, causal=decodes(c), window=window, dropout=dropout),
        q,
        k,
        v,
        module="attn",
        cache="own" if decodes(c) else None,
    )
    return b.dropout(b.linear(mixed, "attn.Wo", x.width, bias=bias, shard="row"), dropout)


def layer(c: Config, index: int, window: int | None, root: str) -> Block:
    """A pre-norm layer; the first takes the embedding's norm for its own."""
    b = BlockBuilder(f"{root}layers.{index}", layer=index, part="attention")
    x = b.input("hidden", c.hidden_size)
    mixed = attention(b, norm(b, x, "attn_norm", c) if index else x, c, window)
    x = b.add(x, mixed)
    b.part, bias = "mlp", c.flag("mlp_bias")
    h = b.linear(norm(b, x, "mlp_norm", c), "mlp.Wi", 2 * c.intermediate_size, bias=bias)
    h, gate = b.split(h, [c.intermediate_size] * 2)
    h = b.multiply(b.activation(h, c.text("hidden_activation", "gelu"), "mlp.act"), gate)
    h = b.linear(b.dropout(h, c.number("mlp_dropout")), "mlp.Wo", x.width, bias=bias, shard="row")
    x = b.add(x, h)
    if not decodes(c):
        b.still_named(mixed)  # `attn_output`
    return b.build(hidden=x)
