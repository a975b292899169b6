"""gpt-oss: attention sinks, alternating windows, biased experts stored as (experts, in, out)."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.mixture import Mixture, model
from vramwise.models.layers.routed_experts import Experts, checked

# Defaults of the configuration class of transformers 5.23.
_DEFAULTS = {
    "head_dim": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "hidden_size": 2880, "intermediate_size": 2880,
    "num_experts_per_tok": 4, "attention_bias": True,
}  # fmt: skip


def windows(c: Config) -> list[int | None]:
    """The window of each layer: every other one, the first included, is sliding."""
    window = c.size("sliding_window", default=128, least=0) or None
    types = c.layer_types()
    if types is None:
        return [window if i % 2 == 0 else None for i in range(c.num_hidden_layers)]
    return [window if kind == "sliding_attention" else None for kind in types]


def attention(b: BlockBuilder, x: Value, c: Config, window: int | None) -> Value:
    """Grouped-query attention whose softmax has one learned column more, the head's sink."""
    b.part = "attention"
    heads, groups, d, bias = c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.flag("attention_bias")
    q, k, v = (
        b.heads_first(b.heads(b.linear(x, f"self_attn.{name}_proj", count * d, bias=bias), count))
        for name, count in (("q", heads), ("k", groups), ("v", groups))
    )
    q, k = b.op("rotary_halves", "", [q, k], [d, d])
    b.keep(LayerCache("sliding" if window else "full", groups, d, d, window=window))
    mixed = b.op(
        "sink_attention", "self_attn", [q, k, v], [heads * d],
        [b.parameter("self_attn", "sinks", (heads,), shard="column")], num_heads=heads, num_key_value_heads=groups,
        causal=True, window=window, dropout=c.number("attention_dropout"),
    )[0]  # fmt: skip
    return b.linear(mixed, "self_attn.o_proj", x.width, bias=bias, shard="row")


def experts(c: Config) -> Experts:
    """The routed experts of every layer."""
    return checked(c, Experts(
        num_experts=c.size("num_local_experts", "num_experts", default=128),
        experts_per_token=c.size("num_experts_per_tok"),
        intermediate_size=c.intermediate_size, function="", routing="gpt_oss", bias=True, gating="clamped",
        transposed=True, router="mlp.router", fused_branches=1,
    ))  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS)
    kinds = [LayerKind(attention=partial(attention, c=c, window=window)) for window in windows(c)]
    m = Mixture(experts(c), balanced=True)
    return model(c, Design(norm_style="fp32-product"), m, [True] * len(kinds), kinds)
