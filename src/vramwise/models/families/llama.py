"""Llama and the families that are Llama with switches: Mistral, Qwen 2, Qwen 3."""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.layers.parts import gated_mlp, lm_head, token_embedding


@dataclass(frozen=True, slots=True)
class Switches:
    """What differs between these families; defaults of the configuration classes of transformers 5.23."""

    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False


def switches(c: Config) -> Switches:
    """The switches that a config sets, by its model type."""
    if c.model_type == "qwen2":
        return Switches(qkv_bias=True)
    if c.model_type == "qwen3":
        bias = c.flag("attention_bias")
        return Switches(qkv_bias=bias, output_bias=bias, qk_norm=True)
    if c.model_type == "mistral":
        return Switches()
    bias = c.flag("attention_bias")
    return Switches(qkv_bias=bias, output_bias=bias, mlp_bias=c.flag("mlp_bias"))


def sliding_windows(c: Config) -> list[int | None]:
    """The window of each layer, None where attention is full."""
    window = c.size("sliding_window", default=0, least=0) or None
    if c.model_type.startswith("qwen") and not c.flag("use_sliding_window"):
        window = None
    types = c.layer_types()
    if types is not None:
        return [window if kind == "sliding_attention" else None for kind in types]
    if c.model_type == "mistral":
        return [window] * c.num_hidden_layers
    if c.model_type.startswith("qwen"):
        first = c.size("max_window_layers", default=28, least=0)
        return [window if i >= first else None for i in range(c.num_hidden_layers)]
    return [None] * c.num_hidden_layers


def attention(b: BlockBuilder, x: Value, c: Config, s: Switches, window: int | None) -> Value:
    """Grouped-query attention with rotary positions."""
    heads, groups, d = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    b.part = "attention"
    q = b.heads(b.linear(x, "self_attn.q_proj", heads * d, bias=s.qkv_bias), heads)
    if s.qk_norm:
        q = b.rms_norm(q, "self_attn.q_norm")
    q = b.heads_first(q)
    k = b.heads(b.linear(x, "self_attn.k_proj", groups * d, bias=s.qkv_bias), groups)
    if s.qk_norm:
        k = b.rms_norm(k, "self_attn.k_norm")
    k = b.heads_first(k)
    v = b.heads_first(b.heads(b.linear(x, "self_attn.v_proj", groups * d, bias=s.qkv_bias), groups))
    q, k = b.rotary(q, k)
    mixed = b.attention(
        q,
        k,
        v,
        num_heads=heads,
        num_key_value_heads=groups,
        window=window,
        dropout=c.number("attention_dropout"),
    )
    return b.linear(mixed, "self_attn.o_proj", x.width, bias=s.output_bias, shard="row")


def layer(c: Config, s: Switches, index: int, window: int | None) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    x = b.add(x, attention(b, b.rms_norm(x, "input_layernorm"), c, s, window))
    h = b.rms_norm(x, "post_attention_layernorm")
    function = c.text("hidden_act", "silu")
    return b.build(hidden=b.add(x, gated_mlp(b, h, c.intermediate_size, function, bias=s.mlp_bias)))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    s = switches(c)
    windows = sliding_windows(c)
    layers = tuple(layer(c, s, i, windows[i]) for i in range(c.num_hidden_layers))
    return (token_embedding(c), *layers, lm_head(c, "model.norm", tied=c.flag("tie_word_embeddings")))
