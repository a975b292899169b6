"""gpt-oss: attention sinks, alternating windows, biased experts stored as (experts, in, out)."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.mixture import Mixture, experts, model
from vramwise.models.layers.windows import typed_layers
from vramwise.models.operations.latent import RotaryHalves, SinkAttention

# Defaults of the configuration class of transformers 5.23.
_DEFAULTS = {
    "head_dim": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "hidden_size": 2880, "intermediate_size": 2880,
    "num_experts_per_tok": 4, "attention_bias": True, "sliding_window": 128,
}  # fmt: skip


def attention(b: BlockBuilder, x: Value, c: Config, window: int | None) -> Value:
    """Grouped-query attention whose softmax has one learned column more, the head's sink."""
    b.part = "attention"
    heads, groups, d, bias = c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.flag("attention_bias")
    q, k, v = (
        b.heads_first(b.heads(b.linear(x, f"self_attn.{name}_proj", count * d, bias=bias), count))
        for name, count in (("q", heads), ("k", groups), ("v", groups))
    )
    q, k = b.op(RotaryHalves(), "", [q, k], [d, d])
    b.keep(LayerCache("sliding" if window else "full", groups, d, d, window=window))
    mixed = b.op(
        SinkAttention(
            num_heads=heads,
            num_key_value_heads=groups,
            causal=True,
            window=window,
            dropout=c.number("attention_dropout"),
        ),
        "self_attn",
        [q, k, v],
        [heads * d],
        [b.parameter("self_attn", "sinks", (heads,), shard="column")],
    )[0]
    return b.linear(mixed, "self_attn.o_proj", x.width, bias=bias, shard="row")


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS)
    default = ["full_attention" if i % 2 else "sliding_attention" for i in range(c.num_hidden_layers)]
    kinds = [LayerKind(attention=partial(attention, c=c, window=kind.window)) for kind in typed_layers(c, default)]
    e = experts(
        Config({**c.values, "moe_intermediate_size": None, "hidden_act": ""}, c.model_id), 128,
        keys=("num_local_experts", "num_experts"), routing="gpt_oss", bias=True, gating="clamped", transposed=True,
        router="mlp.router", fused_branches=1,
    )  # fmt: skip
    return model(c, Design(norm_style="fp32-product"), Mixture(e, balanced=True), [True] * len(kinds), kinds)
