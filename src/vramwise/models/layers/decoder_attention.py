"""Grouped-query attention with the switches of `decoder_design`.

Grouped-query attention of decoders that share little else, with the few switches that these differ by.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.models.blocks import Parameter, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder_design import Design, HeadNorm, LayerKind
from vramwise.models.operations.attention import AnyAttention, Attention, ScaleByPosition
from vramwise.models.operations.norms import LayerNorm
from vramwise.models.operations.simple import ClampInPlace


def grouped_attention(
    b: BlockBuilder, x: Value, c: Config, module: str = "self_attn", *, bias: bool = False, turned: str | None = "half",
    columns: int | None = None, table: str = "default", norms: tuple[str, str] | None = None, output: str = "o_proj",
    output_bias: bool = False, window: int | None = None, scaled_keys: bool = False, width: int | None = None,
    head_dim: int | None = None,
) -> Value:  # fmt: skip
    """Grouped-query attention; `turned`: how the first `columns` of each head turn, None without positions; `norms`:
    modules that norm queries and keys by head; `width`: that of the result where it is not the input's."""
    b.part = "attention"
    heads, groups, d = c.num_attention_heads, c.num_key_value_heads, head_dim or c.head_dim
    q = b.heads(b.linear(x, f"{module}.q_proj", heads * d, bias=bias), heads)
    q = b.heads_first(b.rms_norm(q, f"{module}.{norms[0]}") if norms else q)
    k = b.heads(b.linear(x, f"{module}.k_proj", groups * d, bias=bias), groups)
    k = b.heads_first(b.rms_norm(k, f"{module}.{norms[1]}") if norms else k)
    k = b.scale(k) if scaled_keys else k
    v = b.heads_first(b.heads(b.linear(x, f"{module}.v_proj", groups * d, bias=bias), groups))
    if turned is not None:
        q, k = b.rotary(q, k, rotary_dim=columns, style=turned, table=table)
    mixed = b.attention(
        Attention(num_heads=heads, num_key_value_heads=groups, window=window, dropout=c.number("attention_dropout")),
        q,
        k,
        v,
        module=module,
    )
    return b.linear(mixed, f"{module}.{output}", width or x.width, bias=output_bias, shard="row")


_LAMBDAS = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")


def rotary_columns(c: Config, s: Design) -> int:
    """Columns of the rotary table: the share of each head that is turned, in whole pairs."""
    if s.rotary_share is None:
        return c.head_dim
    rope = c.table("rope_parameters") or c.table("rope_scaling") or Config({})
    share = rope.number("partial_rotary_factor", c.number("partial_rotary_factor", s.rotary_share))
    if not 0 < share <= 1:
        raise c.error(f"partial_rotary_factor: expected a number above 0 and at most 1, got {share}")
    return -(-int(c.head_dim * share) // 2) * 2


def split_heads(b: BlockBuilder, x: Value, c: Config, s: Design) -> list[Value]:
    """q, k and v as (batch, sequence, heads, d), from products of their own or one fused product."""
    d, counts = c.head_dim, (c.num_attention_heads, c.num_key_value_heads, c.num_key_value_heads)
    widths = [count * d for count in counts]
    if s.fused_qkv == "by_head":
        fused = b.linear(x, "self_attn.query_key_value", sum(widths), bias=s.qkv_bias)
        return list(b.split(b.heads(fused, counts[0]), [d, d, d]))
    if s.fused_qkv == "joint":
        pieces = list(b.split(b.linear(x, "self_attn.qkv_proj", sum(widths), bias=s.qkv_bias), widths))
    else:
        pieces = [b.linear(x, f"self_attn.{n}_proj", w, bias=s.qkv_bias) for n, w in zip("qkv", widths, strict=True)]
    if s.qk_norm is not None and s.qk_norm.place == "projection":
        pieces = [*both_normed(b, pieces[0], pieces[1], s.qk_norm), pieces[2]]
    if s.clip_qkv:
        pieces = [b.unary(ClampInPlace(), piece) for piece in pieces]
    return [b.heads(piece, count) for piece, count in zip(pieces, counts, strict=True)]


def both_normed(b: BlockBuilder, q: Value, k: Value, norm: HeadNorm, heads: Sequence[int] = (1, 1)) -> list[Value]:
    """q and k normed; `heads` counts theirs, for norms that have weights for each."""
    return [
        head_norm(b, x, f"self_attn.{n}", count, norm) for x, n, count in zip((q, k), norm.names, heads, strict=True)
    ]


def head_norm(b: BlockBuilder, x: Value, module: str, heads: int, norm: HeadNorm) -> Value:
    weights: Sequence[Parameter]
    if norm.kind == "rms":
        return b.rms_norm(x, module, style=norm.style)
    if norm.kind == "layer":
        return b.layer_norm(x, module)
    if norm.kind == "python":
        weights = [b.parameter(module, "weight", (heads, x.width), part="norm")]
        return b.unary(LayerNorm(style="python"), x, module, weights)
    weights = [b.parameter(f"{module}.norms.{i}", "weight", (x.width,), part="norm") for i in range(heads)]
    return b.unary(LayerNorm(style="per-head"), x, module, weights)


def core(b: BlockBuilder, q: Value, k: Value, v: Value, c: Config, s: Design, kind: LayerKind) -> Value:
    """Attention itself, with parameters of its own in the families where it has some."""
    heads, groups, d, window = c.num_attention_heads, c.num_key_value_heads, c.head_dim, kind.window
    dropout = c.number("attention_dropout")
    if not s.core:
        return b.attention(
            Attention(
                num_heads=heads,
                num_key_value_heads=groups,
                window=window,
                dropout=dropout,
                **{"causal": not s.both_ways, **s.attention},
            ),
            q,
            k,
            v,
            cache=None if s.both_ways else "own",
        )
    b.keep(LayerCache("sliding" if window else "full", groups, d, d, window=window))
    names, width = (("sinks",), heads) if s.core.endswith("sink") else (_LAMBDAS, d)
    from vramwise.models.operations.altered_attention import (
        DifferentialAttention,
        Fp32SinkAttention,
        LseSinkAttention,
    )

    cores: dict[str, type[AnyAttention]] = {
        "lse_sink": LseSinkAttention, "fp32_sink": Fp32SinkAttention, "differential": DifferentialAttention,
    }  # fmt: skip
    own = cores[s.core](num_heads=heads, num_key_value_heads=groups, window=window, dropout=dropout)
    parameters = [b.parameter("self_attn", name, (width,)) for name in names]
    return b.op(own, "self_attn", [q, k, v], [heads * d], parameters)[0]


def attention(b: BlockBuilder, x: Value, c: Config, s: Design, kind: LayerKind) -> Value:
    """Projections, norms of queries and keys, rotary positions, attention, output projection."""
    b.part = "attention"
    heads, groups, d = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    place = s.qk_norm.place if s.qk_norm is not None else ""
    q, k, v = split_heads(b, x, c, s)
    if s.qk_norm is not None and place == "heads":
        q, k = both_normed(b, q, k, s.qk_norm, (heads, groups))
    q, k, v = b.heads_first(q), b.heads_first(k), b.heads_first(v)
    if s.qk_norm is not None and place == "heads_first":
        q, k = both_normed(b, q, k, s.qk_norm, (heads, groups))
    if kind.turned:
        columns = rotary_columns(c, s)
        style = f"{s.rotary}_joined" if s.joined and columns == d else s.rotary
        q, k = b.rotary(q, k, rotary_dim=columns, style=style, table=kind.table or s.rotary_table)
    if s.qk_norm is not None and place == "turned":
        q, k = both_normed(b, q, k, s.qk_norm, (heads, groups))
    if s.scaled_queries == "every":
        q = b.unary(ScaleByPosition(), q)
    elif s.scaled_queries and not kind.turned:
        from vramwise.models.operations.altered_attention import ScaleByLogPosition

        q = b.unary(ScaleByLogPosition(table=kind.table), q)
    mixed = core(b, q, k, v, c, s, kind)
    if s.sub_norms:
        mixed = b.rms_norm(mixed, "self_attn.attn_sub_norm")
    if s.gate is not None:
        mixed = gated(b, mixed, x, heads, *s.gate)
    return b.linear(mixed, f"self_attn.{s.output}", x.width, bias=s.output_bias, shard="row")


def gated(b: BlockBuilder, mixed: Value, x: Value, heads: int, module: str, function: str) -> Value:
    """Attention's result times a function of the layer's input, one number for an element or for a head."""
    from vramwise.models.operations.gates import BiasedHeadGate, SigmoidHeadGate, SoftplusGate

    width = heads if function.endswith("_by_head") else mixed.width
    gate = b.linear(x, f"self_attn.{module}", width, bias=function == "sigmoid_of_biased")
    if function == "sigmoid_biased":
        bias = b.parameter("self_attn", "gate_bias", (heads,), shard="column")
        return b.op(BiasedHeadGate(num_heads=heads), "self_attn", [mixed, gate], [mixed.width], [bias])[0]
    if function in ("sigmoid", "sigmoid_of_biased"):
        return b.multiply(mixed, b.activation(gate, "sigmoid", "self_attn"))
    by_head = SigmoidHeadGate(num_heads=heads) if function == "sigmoid_by_head" else SoftplusGate(num_heads=heads)
    return b.op(by_head, "self_attn", [mixed, gate], [mixed.width])[0]
