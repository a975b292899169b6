"""DBRX: one product for q, k and v, layer norms without bias, experts as three flat matrices."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.decoder import token_embedding
from vramwise.models.layers.routed_experts import Experts, balancing_loss, checked
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.experts import ExpertMlps, Jitter
from vramwise.models.operations.routers import Router
from vramwise.models.operations.simple import Clamp

_DEFAULTS = {"d_model": 2048, "n_heads": 16, "n_layers": 24, "vocab_size": 32_000}


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Grouped-query attention; a clip of the fused product where the config has one."""
    b.part = "attention"
    own = c.table("attn_config") or Config({})
    heads, groups = c.num_attention_heads, own.size("kv_n_heads", default=1)
    if heads % groups:
        raise c.error(f"kv_n_heads ({groups}) does not divide n_heads ({heads})")
    d = c.head_dim
    fused = b.linear(x, "norm_attn_norm.attn.Wqkv", (heads + 2 * groups) * d)
    if own.has("clip_qkv"):
        fused = b.unary(Clamp(), fused)
    pieces = b.split(fused, [heads * d, groups * d, groups * d])
    q, k, v = (b.heads_first(b.heads(p, n)) for p, n in zip(pieces, (heads, groups, groups), strict=True))
    q, k = b.rotary(q, k)
    mixed = b.attention(
        Attention(num_heads=heads, num_key_value_heads=groups, dropout=own.number("attn_pdrop")), q, k, v
    )
    return b.linear(mixed, "norm_attn_norm.attn.out_proj", x.width, shard="row")


def experts(c: Config) -> Experts:
    own = c.table("ffn_config") or Config({})
    function = own.table("ffn_act_fn") or Config({})
    return checked(c, Experts(
        num_experts=own.size("moe_num_experts", default=4), experts_per_token=own.size("moe_top_k", default=1),
        intermediate_size=own.size("ffn_hidden_size", default=3584), function=function.text("name", "silu"),
        routing="dbrx", normalized=own.values.get("moe_normalize_expert_weights", 1.0) is not None,
    ))  # fmt: skip


def feed_forward(b: BlockBuilder, x: Value, c: Config, e: Experts) -> Value:
    """Routed experts, one after another."""
    if (c.table("ffn_config") or Config({})).has("moe_jitter_eps"):
        x = b.unary(Jitter(), x, "ffn.router")
    chosen, inner = e.experts_per_token, e.num_experts * e.intermediate_size
    router = b.parameter("ffn.router.layer", "weight", (e.num_experts, x.width), part="router", is_linear=True)
    weights, indices = b.op(
        Router(style="dbrx", num_experts=e.num_experts, experts_per_token=chosen, normalized=e.normalized),
        "ffn.router",
        [x],
        [chosen, chosen],
        [router],
    )
    parameters = [
        b.parameter("ffn.experts.mlp", name, (inner, x.width), part="experts", shard="expert_column")
        for name in ("w1", "v1", "w2")
    ]
    return b.op(
        ExpertMlps(num_experts=e.num_experts, experts_per_token=chosen, function=e.function, style="flat"),
        "ffn.experts",
        [x, weights, indices],
        [x.width],
        parameters,
    )[0]


def layer(c: Config, e: Experts, index: int) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"transformer.blocks.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    after = c.number("resid_pdrop")
    h = attention(b, b.layer_norm(x, "norm_attn_norm.norm_1", bias=False), c)
    x = b.add(b.dropout(h, after), x)
    h = feed_forward(b, b.layer_norm(x, "norm_attn_norm.norm_2", bias=False), c, e)
    return b.build(hidden=b.add(x, b.dropout(h, after)))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, balancing loss, head."""
    c = Config({**c.filled(_DEFAULTS).values, "head_dim": None}, c.model_id)
    e = experts(c)
    first = token_embedding(c, "transformer.wte")  # emb_pdrop is read by the class, but not applied
    layers = tuple(layer(c, e, i) for i in range(c.num_hidden_layers))
    b = BlockBuilder("")
    x = b.layer_norm(b.input("hidden", c.hidden_size), "transformer.norm_f", bias=False)
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head")
    return (first, *layers, *balancing_loss(c, e, len(layers)), b.build(logits=logits))
