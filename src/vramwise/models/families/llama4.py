"""Llama 4's language model: turned layers attend by chunk, full ones have no positions, experts see all tokens."""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder_ends import lm_head, token_embedding
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.layers.routed_experts import Experts, checked

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
        q, k = b.op("rotary_complex", "", [q, k], [d, d], heads_axis=2)
        if c.flag("use_qk_norm", True):
            q, k = (b.rms_norm(part, "self_attn.qk_norm", style="unweighted") for part in (q, k))
    elif c.flag("attn_temperature_tuning", True):
        q = b.unary("temperature", q, "self_attn")
    kind = LayerCache("chunked" if chunk else "full", groups, d, d, window=chunk)
    mixed = b.attention(
        b.heads_first(q), b.heads_first(k), v, num_heads=heads, num_key_value_heads=groups, window=chunk, style="plain",
        dropout=c.number("attention_dropout"), cache=kind,
    )  # fmt: skip
    return b.linear(mixed, "self_attn.o_proj", x.width, bias=bias, shard="row")


def experts(c: Config) -> Experts:
    return checked(c, Experts(
        num_experts=c.size("num_local_experts"), experts_per_token=c.size("num_experts_per_tok"),
        intermediate_size=c.intermediate_size, function=c.text("hidden_act", "silu"), routing="llama4",
    ))  # fmt: skip


def feed_forward(b: BlockBuilder, x: Value, e: Experts) -> Value:
    """Every expert runs on every token, scaled by its score, which is zero for all but the chosen; one is shared."""
    module, chosen, inner = "feed_forward", e.experts_per_token, e.intermediate_size
    router = b.parameter(f"{module}.router", "weight", (e.num_experts, x.width), part="router", is_linear=True)
    settings = {"num_experts": e.num_experts, "experts_per_token": chosen}
    scores = b.op("router_scores", f"{module}.router", [x], [e.num_experts], [router], **settings)[0]
    up_shape, down_shape = (e.num_experts, x.width, 2 * inner), (e.num_experts, inner, x.width)
    parameters = [
        b.parameter(f"{module}.experts", "gate_up_proj", up_shape, part="experts", shard="expert_column"),
        b.parameter(f"{module}.experts", "down_proj", down_shape, part="experts", shard="expert_row"),
    ]
    routed = b.op(
        "experts", f"{module}.experts", [x, scores], [x.width], parameters, **settings, function=e.function,
        style="everywhere",
    )[0]  # fmt: skip
    shared = gated_mlp(b, x, inner, e.function, module=f"{module}.shared_expert")
    return b.op("add_in_place", "", [shared, routed], [x.width])[0]


def layer(c: Config, index: int, *, turned: bool, chunk: int | None, sparse: bool) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    x = b.add(x, attention(b, b.rms_norm(x, "input_layernorm"), c, turned=turned, chunk=chunk))
    h = b.rms_norm(x, "post_attention_layernorm")
    if sparse:
        h = feed_forward(b, h, experts(c))
    else:
        width = c.size("intermediate_size_mlp")
        h = gated_mlp(b, h, width, c.text("hidden_act", "silu"), module="feed_forward")
    return b.build(hidden=b.add(x, h))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS)
    layers, period = range(c.num_hidden_layers), c.size("no_rope_layer_interval", default=4)
    turned = c.items("no_rope_layers") or [int((i + 1) % period != 0) for i in layers]
    if len(turned) < len(layers):
        raise c.error(f"no_rope_layers names {len(turned)} layers, num_hidden_layers is {len(layers)}")
    types = c.layer_types() or ["chunked_attention" if turned[i] else "full_attention" for i in layers]
    step = c.size("interleave_moe_layer_step", default=1)
    given = c.items("moe_layers")
    sparse = range(step - 1, len(layers), step) if given is None else given
    chunk = c.size("attention_chunk_size", default=8192)
    built = (
        layer(
            c, i, turned=bool(turned[i]), chunk=chunk if types[i] == "chunked_attention" else None, sparse=i in sparse
        )
        for i in layers
    )
    return (token_embedding(c), *built, lm_head(c, "model.norm", tied=c.flag("tie_word_embeddings")))
