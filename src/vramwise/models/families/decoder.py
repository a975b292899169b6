"""A decoder layer with the switches that many Llama-like families differ by; `variants` sets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vramwise.models.blocks import Block, BlockBuilder, Parameter, Value
from vramwise.models.config import Config
from vramwise.models.families.parts import gated_mlp


@dataclass(frozen=True, slots=True)
class Design:
    """What differs between these families.

    `norms` names the norms before and after attention and before and after the MLP; without the third, the MLP reads
    what attention reads (parallel residual). `qk_norm` says what is normed: whole projections (`projection`), all
    heads with a weight each (`heads`), or heads after they are turned (`turned`, `turned-per-head`).
    """

    norm: str = "rms"
    norm_style: str = "llama"
    norm_weight: bool = True
    norm_bias: bool = False
    norms: tuple[str | None, ...] = ("input_layernorm", None, "post_attention_layernorm", None)
    final_norm: str = "model.norm"
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    fused_qkv: bool = False
    qk_norm: str = ""
    clip_qkv: bool = False
    output: str = "o_proj"
    mlp: str = "gated"
    mlp_names: tuple[str, str] = ("up_proj", "down_proj")
    rotary: str = "half"
    rotary_table: str = "default"
    rotary_share: float = 1.0
    joined: bool = False
    scaled: bool = False
    scaled_logits: bool = False
    dropouts: tuple[float, float, float] = (0.0, 0.0, 0.0)
    tied: bool = False


@dataclass(frozen=True, slots=True)
class LayerKind:
    """What differs between the layers of one model."""

    window: int | None = None
    turned: bool = True


def norm(b: BlockBuilder, x: Value, name: str | None, s: Design) -> Value:
    """The family's norm, where it has one at this place."""
    if name is None:
        return x
    if s.norm == "rms":
        return b.rms_norm(x, name, style=s.norm_style)
    return b.layer_norm(x, name, weight=s.norm_weight, bias=s.norm_bias, style=s.norm_style)


def rotary_columns(c: Config, s: Design) -> int:
    """Columns of the rotary table: the share of each head that is turned, in whole pairs."""
    rope = c.table("rope_parameters") or c.table("rope_scaling") or Config({})
    share = rope.number("partial_rotary_factor", c.number("partial_rotary_factor", s.rotary_share))
    if not 0 < share <= 1:
        raise c.error(f"partial_rotary_factor: expected a number above 0 and at most 1, got {share}")
    return -(-int(c.head_dim * share) // 2) * 2


def projections(b: BlockBuilder, x: Value, c: Config, s: Design) -> list[Value]:
    """q, k and v as (batch, sequence, heads·d)."""
    d = c.head_dim
    widths = [c.num_attention_heads * d, c.num_key_value_heads * d, c.num_key_value_heads * d]
    if s.fused_qkv:
        return list(b.split(b.linear(x, "self_attn.qkv_proj", sum(widths), bias=s.qkv_bias), widths))
    q, k, v = (b.linear(x, f"self_attn.{n}_proj", w, bias=s.qkv_bias) for n, w in zip("qkv", widths, strict=True))
    if s.qk_norm == "projection":
        q = b.rms_norm(q, "self_attn.q_norm", style=s.norm_style)
        k = b.rms_norm(k, "self_attn.k_norm", style=s.norm_style)
    return [b.unary("clamp_", piece) for piece in (q, k, v)] if s.clip_qkv else [q, k, v]


def head_norm(b: BlockBuilder, x: Value, name: str, heads: int, s: Design) -> Value:
    """The norm of q's or k's heads, before or after they are turned."""
    weights: Sequence[Parameter]
    if s.qk_norm == "heads":
        weights = [b.parameter(f"self_attn.{name}_norm", "weight", (heads, x.width), part="norm")]
        return b.unary("layer_norm", x, f"self_attn.{name}_norm", weights, style="python")
    if s.qk_norm == "turned":
        return b.layer_norm(x, f"self_attn.{name}_layernorm")
    module = f"self_attn.{name}_layernorm"
    weights = [b.parameter(f"{module}.norms.{i}", "weight", (x.width,), part="norm") for i in range(heads)]
    return b.unary("layer_norm", x, module, weights, style="per-head")


def attention(b: BlockBuilder, x: Value, c: Config, s: Design, kind: LayerKind) -> Value:
    """Grouped-query attention."""
    b.part = "attention"
    heads, groups, d = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    counts = (heads, groups, groups)
    q, k, v = (b.heads(piece, n) for piece, n in zip(projections(b, x, c, s), counts, strict=True))
    if s.qk_norm == "heads":
        q, k = head_norm(b, q, "q", heads, s), head_norm(b, k, "k", groups, s)
    q, k, v = b.heads_first(q), b.heads_first(k), b.heads_first(v)
    if s.qk_norm.startswith("turned"):
        q, k = head_norm(b, q, "q", heads, s), head_norm(b, k, "k", groups, s)
    if kind.turned:
        columns = rotary_columns(c, s)
        style = f"{s.rotary}_joined" if s.joined and columns == d else s.rotary
        q, k = b.rotary(q, k, rotary_dim=columns, style=style, table=s.rotary_table)
    mixed = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=groups, window=kind.window, dropout=c.number("attention_dropout")
    )
    return b.linear(mixed, f"self_attn.{s.output}", x.width, bias=s.output_bias, shard="row")


def mlp(b: BlockBuilder, x: Value, c: Config, s: Design) -> Value:
    """Gated (in two products or one fused), or two linear layers with an activation between them."""
    b.part = "mlp"
    width, function = c.intermediate_size, c.text("hidden_act", "silu")
    if s.mlp == "gated":
        return gated_mlp(b, x, width, function, bias=s.mlp_bias)
    if s.mlp == "fused":
        gate, up = b.split(b.linear(x, "mlp.gate_up_proj", 2 * width), [width, width])
        h = b.multiply(up, b.activation(gate, function, "mlp.activation_fn"))
        return b.linear(h, "mlp.down_proj", x.width, shard="row")
    first, second = s.mlp_names
    h = b.activation(b.linear(x, f"mlp.{first}", width, bias=s.mlp_bias), function, "mlp.act")
    return b.linear(h, f"mlp.{second}", x.width, bias=s.mlp_bias, shard="row")


def layer(c: Config, s: Design, index: int, kind: LayerKind) -> Block:
    """One decoder layer."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    before, after, before_mlp, after_mlp = s.norms
    x = b.input("hidden", c.hidden_size)
    read = norm(b, x, before, s)
    mixed = b.dropout(norm(b, attention(b, read, c, s, kind), after, s), s.dropouts[1])
    x = b.add(x, b.scale(mixed) if s.scaled else mixed)
    if before_mlp is not None or after_mlp is not None:
        read = norm(b, x, before_mlp, s)
    h = b.dropout(norm(b, mlp(b, read, c, s), after_mlp, s), s.dropouts[2])
    return b.build(hidden=b.add(x, b.scale(h) if s.scaled else h))


def model(c: Config, s: Design, kinds: Sequence[LayerKind]) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    b = BlockBuilder("")
    x = b.embedding("model.embed_tokens", c.vocab_size, c.hidden_size)
    first = b.build(hidden=b.dropout(b.scale(x) if s.scaled else x, s.dropouts[0]))
    layers = (layer(c, s, index, kind) for index, kind in enumerate(kinds))
    b = BlockBuilder("")
    x = norm(b, b.input("hidden", c.hidden_size), s.final_norm, s)
    tied_to = "model.embed_tokens.weight" if c.flag("tie_word_embeddings", s.tied) else None
    logits = b.linear(x, "lm_head", c.vocab_size, bias=s.head_bias, shard="vocab", part="head", tied_to=tied_to)
    return (first, *layers, b.build(logits=b.scale(logits) if s.scaled_logits else logits))
