"""Llama 4's language model: turned layers attend by chunk, full ones have no positions, experts see all tokens."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder import model
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.mixture import experts
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.operations.attention import PLAIN, Attention
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.operations.latent import RotaryComplex, Temperature
from vramwise.models.operations.routers import RouterScores
from vramwise.models.operations.simple import AddInPlace

# Defaults of the configuration class (transformers 5.23).
_DEFAULTS = {
    "vocab_size": 202_048, "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16_384,
    "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
    "num_experts_per_tok": 1, "num_local_experts": 16,
}  # fmt: skip


def attention(b: BlockBuilder, x: Value, c: Config, *, turned: bool, chunk: int | None) -> Value:
    """Grouped-query attention; turned layers norm queries and keys, the others scale queries by position."""
    b.part = "attention"
    heads, groups, d, bias = c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.flag("attention_bias")
    q, k, v = (
        b.heads(b.linear(x, f"self_attn.{name}_proj", count * d, bias=bias), count)
        for name, count in (("q", heads), ("k", groups), ("v", groups))
    )
    v = b.heads_first(v)
    if turned:
        if d % 2:
            raise c.error(f"rotary positions turn pairs: head_dim ({d}) must be even")
        q, k = b.op(RotaryComplex(heads_axis=2), "", [q, k], [d, d])
        if c.flag("use_qk_norm", True):
            q, k = (b.rms_norm(part, "self_attn.qk_norm", style="unweighted") for part in (q, k))
    elif c.flag("attn_temperature_tuning", True):
        q = b.unary(Temperature(), q, "self_attn")
    kind = LayerCache("chunked" if chunk else "full", groups, d, d, window=chunk)
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=groups,
            window=chunk,
            style=PLAIN,
            dropout=c.number("attention_dropout"),
        ),
        b.heads_first(q),
        b.heads_first(k),
        v,
        cache=kind,
    )
    return b.linear(mixed, "self_attn.o_proj", x.width, bias=bias, shard="row")


def feed_forward(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """Every expert runs on every token, scaled by its score, which is zero for all but the chosen; one is shared."""
    module, e = "feed_forward", experts(c, None, keys=("num_local_experts",), routing="llama4")
    chosen, inner = e.experts_per_token, e.intermediate_size
    router = b.parameter(f"{module}.router", "weight", (e.num_experts, x.width), part="router", is_linear=True)
    scores = b.op(
        RouterScores(num_experts=e.num_experts, experts_per_token=chosen),
        f"{module}.router",
        [x],
        [e.num_experts],
        [router],
    )[0]
    up_shape, down_shape = (e.num_experts, x.width, 2 * inner), (e.num_experts, inner, x.width)
    parameters = [
        b.parameter(f"{module}.experts", "gate_up_proj", up_shape, part="experts", shard="expert_column"),
        b.parameter(f"{module}.experts", "down_proj", down_shape, part="experts", shard="expert_row"),
    ]
    routed = b.op(
        ExpertMlps(num_experts=e.num_experts, experts_per_token=chosen, function=e.function, style="everywhere"),
        f"{module}.experts",
        [x, scores],
        [x.width],
        parameters,
    )[0]
    shared = gated_mlp(b, x, inner, e.function, module=f"{module}.shared_expert")
    return b.op(AddInPlace(), "", [shared, routed], [x.width])[0]


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS)
    layers, period = range(c.num_hidden_layers), c.size("no_rope_layer_interval", default=4)
    turned = c.by_layer("no_rope_layers", empty_is_absent=True) or [int((i + 1) % period != 0) for i in layers]
    types = c.layer_types() or ["chunked_attention" if flag else "full_attention" for flag in turned]
    step, given = c.size("interleave_moe_layer_step", default=1), c.items("moe_layers")
    sparse = range(step - 1, len(layers), step) if given is None else given
    chunk, function = c.size("attention_chunk_size", default=8192), c.text("hidden_act", "silu")
    dense = partial(gated_mlp, width=c.size("intermediate_size_mlp", least=0), function=function, module="feed_forward")
    kinds = []
    for i, (flag, kind) in enumerate(zip(turned, types, strict=True)):
        own = chunk if kind == "chunked_attention" else None
        mixer = partial(attention, c=c, turned=bool(flag), chunk=own)
        kinds.append(LayerKind(attention=mixer, mlp=partial(feed_forward, c=c) if i in sparse else dense))
    return model(c, Design(), kinds)
