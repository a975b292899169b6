"""DeepSeek V4: several residual streams mixed by hyper-connections, one key-value head, compressed far tokens."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.families.parts import token_embedding
from vramwise.models.families.sparse import Experts, balancing_loss, checked, routed_experts

# Defaults of the configuration class (transformers 5.23).
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 129_280, "hidden_size": 4096, "moe_intermediate_size": 2048, "num_hidden_layers": 43,
    "num_attention_heads": 64, "head_dim": 512, "q_lora_rank": 1024, "num_experts_per_tok": 6, "hc_mult": 4,
    "hc_sinkhorn_iters": 20, "sliding_window": 128, "o_groups": 8, "o_lora_rank": 1024, "index_n_heads": 64,
    "index_head_dim": 128,
}  # fmt: skip
_RATES = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
_BY_RATE = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}


def layer_types(c: Config) -> list[str]:
    """Which layers see far tokens, and how much compressed; checkpoints name the rates instead."""
    layers, ratios = c.num_hidden_layers, c.items("compress_ratios")
    types = c.layer_types()
    if types is None and ratios is not None:
        if len(ratios) < layers or any(ratio not in _BY_RATE for ratio in ratios):
            raise c.error(f"compress_ratios: expected {layers} of {', '.join(map(str, _BY_RATE))}")
        types = [_BY_RATE[ratio] for ratio in ratios[:layers]]
    light, heavy = _BY_RATE[4], _BY_RATE[128]
    return types or [light if i > 1 and i % 2 else heavy for i in range(layers)]


def rate_of(c: Config, kind: str) -> int:
    """Tokens that become one, 0 in layers that see their window only."""
    if kind not in _RATES:
        return 0
    given = c.table("compress_rates") or Config({}, c.model_id)
    legacy = "compress_rate_csa" if kind.startswith("compressed") else "compress_rate_hca"
    return c.size(legacy, default=given.size(kind, default=_RATES[kind]))


def compressor(
    b: BlockBuilder, x: Value, c: Config, rate: int, *, overlapping: bool, module: str, width: int,
    for_index: bool = False,
) -> Value:  # fmt: skip
    """Windows of `rate` tokens, gated and summed into one vector each; overlapping ones see the window before too."""
    wide = 2 * width if overlapping else width
    parameters = [
        b.parameter(f"{module}.kv_proj", "weight", (wide, x.width), is_linear=True),
        b.parameter(f"{module}.gate_proj", "weight", (wide, x.width), is_linear=True),
        b.parameter(module, "position_bias", (rate, wide)),
        b.parameter(f"{module}.kv_norm", "weight", (width,), part="norm"),
    ]
    return b.op(
        "compress_tokens", module, [x], [width], parameters, rate=rate, chunk_size=rate - 1, overlapping=overlapping,
        rotary_dim=rotary_columns(c), for_index=for_index,
    )[0]  # fmt: skip


def rotary_columns(c: Config) -> int:
    """Columns of a head with rotary positions, the last ones."""
    share = c.number("partial_rotary_factor", c.size("qk_rope_head_dim", default=c.head_dim // 8) / c.head_dim)
    columns = int(c.head_dim * share)
    if columns % 2 or not 0 < columns <= c.head_dim:
        raise c.error(f"rotary positions turn pairs: {columns} columns of a head of {c.head_dim} cannot be turned")
    return columns


def attention(b: BlockBuilder, x: Value, c: Config, kind: str) -> Value:
    """Queries of every head against one shared head that is key and value at once, near tokens and compressed ones."""
    b.part = "attention"
    heads, d, rank, rate = c.num_attention_heads, c.head_dim, c.size("q_lora_rank"), rate_of(c, kind)
    table, columns = "compress" if rate else "main", rotary_columns(c)
    low = b.linear(x, "self_attn.q_a_proj", rank, shard="replicated")
    low = b.rms_norm(low, "self_attn.q_a_norm", style="fp32-product")
    q = b.heads_first(b.heads(b.linear(low, "self_attn.q_b_proj", heads * d), heads))
    q = b.rms_norm(q, "self_attn.q_b_norm", style="unweighted-factor")
    q = b.unary("rotary_tail", q, rotary_dim=columns, table=table, inverse=False)
    kv = b.rms_norm(b.linear(x, "self_attn.kv_proj", d, shard="replicated"), "self_attn.kv_norm", style="fp32-product")
    kv = b.unary("rotary_tail", b.heads_first(b.heads(kv, 1)), rotary_dim=columns, table=table, inverse=False)
    b.keep(LayerCache("sliding", 1, d, 0, window=c.size("sliding_window")))
    if rate:
        module, overlapping = "self_attn.compressor", kind.startswith("compressed")
        far = compressor(b, x, c, rate, overlapping=overlapping, module=module, width=d)
        index_dim = 0
        if overlapping:
            index_dim, index_heads = c.size("index_head_dim"), c.size("index_n_heads")
            index = f"{module}.indexer"
            keys = compressor(b, x, c, rate, overlapping=True, module=index, width=index_dim, for_index=True)
            parameters = [
                b.parameter(f"{index}.q_b_proj", "weight", (index_heads * index_dim, rank), is_linear=True),
                b.parameter(f"{index}.scorer.weights_proj", "weight", (index_heads, x.width), is_linear=True),
            ]
            b.op("index_scores", index, [x, low, keys], [], parameters, num_heads=index_heads)
        kv = b.op("append_tokens", "self_attn", [kv, far], [d])[0]
        # One compressed vector for every `rate` tokens, counted as each token's share of it.
        b.keep(LayerCache("full", 1, -(-d // rate), -(-index_dim // rate)))
    mixed = b.op(
        "sink_attention", "self_attn", [q, kv, kv], [heads * d],
        [b.parameter("self_attn", "sinks", (heads,), shard="column")], num_heads=heads, num_key_value_heads=1,
        causal=True, window=c.size("sliding_window"), dropout=c.number("attention_dropout"),
    )[0]  # fmt: skip
    turned = b.heads_first(b.heads(mixed, heads))
    turned = b.heads_first(b.unary("rotary_tail", turned, rotary_dim=columns, table=table, inverse=True))
    groups, low_width = c.size("o_groups"), c.size("o_lora_rank")
    if (heads * d) % groups:
        raise c.error(f"o_groups ({groups}) does not divide num_attention_heads · head_dim ({heads * d})")
    weight = b.parameter(
        "self_attn.o_a_proj", "weight", (groups * low_width, heads * d // groups), shard="column", is_linear=True
    )
    h = b.op("grouped_linear", "self_attn.o_a_proj", [turned], [groups * low_width], [weight], groups=groups)[0]
    return b.linear(h, "self_attn.o_b_proj", x.width, shard="row")


def experts(c: Config) -> Experts:
    return checked(c, Experts(
        num_experts=c.size("n_routed_experts", "num_local_experts", default=256),
        experts_per_token=c.size("num_experts_per_tok"), intermediate_size=c.size("moe_intermediate_size"),
        function=c.text("hidden_act", "silu"), routing="deepseek_v4", gating="limited",
    ))  # fmt: skip


def feed_forward(b: BlockBuilder, x: Value, c: Config, e: Experts) -> Value:
    """Routed experts and a shared one; gates and values are clamped."""
    routed, bias, module = routed_experts(b, x, e), c.flag("mlp_bias"), "mlp.shared_experts"
    gate = b.unary("clamp", b.linear(x, f"{module}.gate_proj", e.intermediate_size, bias=bias, part="mlp"))
    up = b.unary("clamp", b.linear(x, f"{module}.up_proj", e.intermediate_size, bias=bias, part="mlp"))
    h = b.multiply(b.activation(gate, e.function, f"{module}.act_fn"), up)
    return b.add(routed, b.linear(h, f"{module}.down_proj", x.width, bias=bias, shard="row", part="mlp"))


def connected(b: BlockBuilder, streams: Value, c: Config, module: str) -> tuple[Value, Value, Value]:
    """What a half of the layer reads, and how its result and the streams become the next streams."""
    m = c.size("hc_mult")
    count = (2 + m) * m
    parameters = [
        b.parameter(module, "fn", (count, m * streams.width), part="mixer"),
        b.parameter(module, "base", (count,), part="mixer"),
        b.parameter(module, "scale", (3,), part="mixer"),
    ]
    widths = [m, m, streams.width]
    out = b.op("hyper_connection", module, [streams], widths, parameters, iterations=c.size("hc_sinkhorn_iters"))
    return out[0], out[1], out[2]


def layer(c: Config, e: Experts, index: int, kind: str) -> Block:
    """Attention and MLP, each between a hyper-connection and its mix."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    post, mix, h = connected(b, x, c, "attn_hc")
    h = attention(b, b.rms_norm(h, "input_layernorm", style="fp32-product"), c, kind)
    x = b.op("hyper_merge", "", [post, mix, h, x], [x.width])[0]
    post, mix, h = connected(b, x, c, "ffn_hc")
    h = feed_forward(b, b.rms_norm(h, "post_attention_layernorm", style="fp32-product"), c, e)
    return b.build(hidden=b.op("hyper_merge", "", [post, mix, h, x], [x.width])[0])


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, balancing loss, head."""
    c = c.filled(_DEFAULTS)
    e, m = experts(c), c.size("hc_mult")
    layers = tuple(layer(c, e, i, kind) for i, kind in enumerate(layer_types(c)))
    b = BlockBuilder("")
    copies = b.build(hidden=b.unary("copy_streams", b.input("hidden", c.hidden_size), copies=m))
    b = BlockBuilder("")
    shapes = {"hc_fn": (m, m * c.hidden_size), "hc_base": (m,), "hc_scale": (1,)}
    parameters = [b.parameter("model.hc_head", name, shape, part="mixer") for name, shape in shapes.items()]
    x = b.unary("hyper_head", b.input("hidden", c.hidden_size), "model.hc_head", parameters)
    x = b.rms_norm(x, "model.norm", style="fp32-product")
    tied_to = "model.embed_tokens.weight" if c.flag("tie_word_embeddings") else None
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    loss = balancing_loss(c, e, len(layers))
    return (token_embedding(c), copies, *layers, *loss, b.build(logits=logits))
