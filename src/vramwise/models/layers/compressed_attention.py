"""Attention of DeepSeek V4: one head that is key and value, a window of near tokens, compressed far ones, sinks."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.operations.hyper import AppendTokens, CompressTokens, GroupedLinear, IndexScores, RotaryTail
from vramwise.models.operations.latent import SinkAttention

_RATES = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


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
        CompressTokens(
            rate=rate, chunk_size=rate - 1, overlapping=overlapping, rotary_dim=rotary_columns(c), for_index=for_index
        ),
        module,
        [x],
        [width],
        parameters,
    )[0]


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
    q = b.unary(RotaryTail(rotary_dim=columns, table=table, inverse=False), q)
    kv = b.rms_norm(b.linear(x, "self_attn.kv_proj", d, shard="replicated"), "self_attn.kv_norm", style="fp32-product")
    kv = b.unary(RotaryTail(rotary_dim=columns, table=table, inverse=False), b.heads_first(b.heads(kv, 1)))
    # Layers without compression are kept by the common class, which stores the vector as key and as value.
    b.keep(LayerCache("sliding", 1, d, 0, window=c.size("sliding_window"), copies=1 if rate else 2))
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
            b.op(IndexScores(num_heads=index_heads), index, [x, low, keys], [], parameters)
        kv = b.op(AppendTokens(), "self_attn", [kv, far], [d])[0]
        # One compressed vector for every `rate` tokens, counted as each token's share of it.
        b.keep(LayerCache("full", 1, -(-d // rate), -(-index_dim // rate)))
    mixed = b.op(
        SinkAttention(
            num_heads=heads,
            num_key_value_heads=1,
            causal=True,
            window=c.size("sliding_window"),
            dropout=c.number("attention_dropout"),
        ),
        "self_attn",
        [q, kv, kv],
        [heads * d],
        [b.parameter("self_attn", "sinks", (heads,), shard="column")],
    )[0]
    turned = b.heads_first(b.heads(mixed, heads))
    turned = b.heads_first(b.unary(RotaryTail(rotary_dim=columns, table=table, inverse=True), turned))
    groups, low_width = c.size("o_groups"), c.size("o_lora_rank")
    if (heads * d) % groups:
        raise c.error(f"o_groups ({groups}) does not divide num_attention_heads · head_dim ({heads * d})")
    weight = b.parameter(
        "self_attn.o_a_proj", "weight", (groups * low_width, heads * d // groups), shard="column", is_linear=True
    )
    h = b.op(GroupedLinear(groups=groups), "self_attn.o_a_proj", [turned], [groups * low_width], [weight])[0]
    return b.linear(h, "self_attn.o_b_proj", x.width, shard="row")
