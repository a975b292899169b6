"""OLMo hybrid: three layers of gated DeltaNet to one of attention, whose norms come after it."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.families import decoder
from vramwise.models.families.decoder_attention import attention
from vramwise.models.families.delta_net import DeltaNet, sizes
from vramwise.models.families.design import Design, HeadNorm, LayerKind
from vramwise.models.families.hybrid import layer_kinds
from vramwise.models.families.parts import gated_mlp

CLASS_DEFAULTS: dict[str, Any] = {
    "vocab_size": 100_352, "hidden_size": 3840, "intermediate_size": 11_008, "num_hidden_layers": 32,
    "num_attention_heads": 30, "hidden_act": "silu", "linear_conv_kernel_dim": 4,
}  # fmt: skip
"""Defaults of `OlmoHybridConfig` (transformers 5.23)."""


def completed(c: Config) -> Config:
    """The config with its class's defaults, of which the linear layers' sizes follow from the others."""
    c = c.filled(CLASS_DEFAULTS)
    heads = c.size("linear_num_key_heads", default=c.num_attention_heads)
    key = c.size("linear_key_head_dim", default=int(0.75 * c.hidden_size / heads))
    own = {
        "linear_num_key_heads": heads, "linear_num_value_heads": c.num_attention_heads, "linear_key_head_dim": key,
        "linear_value_head_dim": 2 * key,
    }  # fmt: skip
    return c.filled(own)


def kinds(c: Config) -> list[str]:
    """Every fourth layer attends; a model of fewer layers attends in its last."""
    default = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(c.num_hidden_layers)]
    if "full_attention" not in default:
        default[-1] = "full_attention"
    return layer_kinds(c, default, allowed=("linear_attention", "full_attention"))


def mixer(b: BlockBuilder, x: Value, s: DeltaNet) -> Value:
    """out(norm(rule(conv(q, k, v), b, a)) · gate(g))."""
    module = "linear_attn"
    b.part = "mixer"
    widths = {"q": s.keys, "k": s.keys, "v": s.values, "a": s.value_heads, "b": s.value_heads, "g": s.values}
    inputs = [b.linear(x, f"{module}.{name}_proj", width) for name, width in widths.items()]
    channels = 2 * s.keys + s.values
    parameters = [
        b.parameter(module, "A_log", (s.value_heads,), shard="column"),
        b.parameter(module, "dt_bias", (s.value_heads,), shard="column"),
        b.parameter(f"{module}.conv1d", "weight", (channels, 1, s.kernel), shard="column"),
        b.parameter(f"{module}.o_norm", "weight", (s.value_dim,), part="norm"),
    ]
    (mixed,) = b.op("undescribed", module, inputs, [s.values], parameters, name="OLMo hybrid's gated DeltaNet")
    b.keep(LayerCache("recurrent", conv_state_elements=channels * s.kernel, state_elements=s.values * s.key_dim))
    return b.linear(mixed, f"{module}.o_proj", x.width, shard="row")


def layer(c: Config, index: int, kind: str) -> Block:
    """Linear layers have their norms before, attention and its MLP after."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x, function = b.input("hidden", c.hidden_size), c.text("hidden_act")
    if kind == "linear_attention":
        x = b.add(x, mixer(b, b.rms_norm(x, "input_layernorm"), sizes(c)))
        h = b.rms_norm(x, "post_attention_layernorm")
        return b.build(hidden=b.add(x, gated_mlp(b, h, c.intermediate_size, function)))
    bias = c.flag("attention_bias")
    turned = c.has("rope_parameters") and (c.table("rope_parameters") or Config({})).has("rope_theta")
    s = Design(qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("projection"))
    h = attention(b, x, c, s, LayerKind(turned=turned))
    x = b.add(x, b.rms_norm(h, "post_attention_layernorm"))
    h = gated_mlp(b, x, c.intermediate_size, function)
    return b.build(hidden=b.add(x, b.rms_norm(h, "post_feedforward_layernorm")))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = completed(c)
    first, last = decoder.model(c, Design(), [])
    return (first, *(layer(c, i, kind) for i, kind in enumerate(kinds(c))), last)
