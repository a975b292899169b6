"""Compressed convolutional attention (arXiv 2510.04476)."""

from __future__ import annotations

from vramwise.models.blocks import Parameter, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.compressed_convolution import ConvolvedHeads, DelayedByOne, HeadsOfLength, JoinedHalves
from vramwise.models.operations.mixers import PaddingZeroed


def convolutions(b: BlockBuilder, c: Config, channels: int, inner: int) -> list[Parameter]:
    """Weights and biases of the convolution by channel and of the one by head."""
    sizes = (("depthwise", 1, c.size("cca_time0")), ("grouped", inner, c.size("cca_time1")))
    return [
        b.parameter(f"self_attn.qkv_proj.conv_qk_{name}", leaf, shape, part="attention")
        for name, width, kernel in sizes
        for leaf, shape in (("weight", (channels, width, kernel)), ("bias", (channels,)))
    ]


def attention(b: BlockBuilder, x: Value, c: Config, kind: str) -> Value:
    """Queries and keys of a few tokens, half of each value of the token before."""
    b.part = "attention"
    heads, groups, d, bias = c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.flag("attention_bias")
    if groups * d % 2:
        raise c.error("num_key_value_heads · head_dim must be even: half of each value comes from the token before")
    module, channels = "self_attn.qkv_proj", (heads + groups) * d
    read = b.unary(PaddingZeroed(), x)
    q, k = (b.linear(read, f"{module}.{n}_proj", width * d, bias=bias) for n, width in (("q", heads), ("k", groups)))
    q, k = b.op(
        ConvolvedHeads(num_heads=heads, num_key_value_heads=groups, head_dim=d),
        module,
        [q, k],
        [d, d],
        convolutions(b, c, channels, d),
    )
    current = b.linear(read, f"{module}.v_proj_current", groups * d // 2, bias=bias)
    delayed = b.linear(read, f"{module}.v_proj_delayed", groups * d // 2, bias=bias)
    own = b.ops[-1].parameters
    delayed = b.op(DelayedByOne(), module, [read, delayed], [delayed.width], own)[0]
    v = b.heads(b.op(JoinedHalves(), module, [current, delayed], [groups * d])[0], groups)
    q = b.unary(HeadsOfLength(), q, "self_attn.qk_norm")
    k = b.unary(HeadsOfLength(), k, "self_attn.qk_norm", [b.parameter("self_attn.qk_norm", "temp", (groups,))])
    q, k, v = b.heads_first(q), b.heads_first(k), b.heads_first(v)
    rope = (c.table("rope_parameters") or Config({})).table(kind) or Config({"partial_rotary_factor": 0.5})
    columns = -(-int(d * rope.number("partial_rotary_factor", 1.0)) // 2) * 2
    q, k = b.rotary(q, k, rotary_dim=columns, style="half_joined" if columns == d else "half", table=kind)
    b.keep(LayerCache(
        "recurrent", conv_state_elements=channels * (c.size("cca_time0") + c.size("cca_time1") - 2),
        state_elements=delayed.width, model_dtype_state=True,
    ))  # fmt: skip
    window = (c.size("sliding_window", default=0, least=0) or None) if kind == "hybrid_sliding" else None
    mixed = b.attention(
        Attention(num_heads=heads, num_key_value_heads=groups, window=window, dropout=c.number("attention_dropout")),
        q,
        k,
        v,
    )
    return b.linear(mixed, "self_attn.o_proj", x.width, bias=bias, shard="row")
