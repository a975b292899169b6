"""Kimi delta attention (arXiv 2510.26692): the delta rule with a decay for every channel of a key."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.delta_net import CHUNK
from vramwise.models.layers.short_convolution import short_convolution
from vramwise.models.operations.kimi_delta import BailingForgetGate, KimiDeltaRule, KimiForgetGate, SigmoidGatedNorm
from vramwise.models.operations.mixers import ChannelsFirst, ChannelsLast, PaddingZeroed
from vramwise.models.operations.simple import Concatenate


def delta_attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """out(norm(rule(conv(q, k, v), b, decay)) · gate): the delta rule with a decay for every channel of a key."""
    heads, d, kernel = c.size("linear_num_heads"), c.size("linear_head_dim"), c.size("linear_conv_kernel_dim")
    width, kimi, module = heads * d, c.model_type == "kimi_linear", "self_attn"
    b.part = "mixer"
    x, hidden_size = b.unary(PaddingZeroed(), x), x.width
    pieces = [b.linear(x, f"{module}.{name}_proj", width) for name in "qkv"]
    (joint,) = b.op(Concatenate(), module, pieces, [3 * width])
    h = b.unary(ChannelsFirst(), joint)
    h = short_convolution(b, h, f"{module}.conv1d", kernel, function=c.text("hidden_act"))
    q, k, v = b.split(b.unary(ChannelsLast(), h), [width] * 3)
    decay = forget_gate(b, x, c, width, heads, module)
    beta = b.linear(x, f"{module}.b_proj", heads)
    settings: dict[str, Any] = {"num_heads": heads, "chunk_size": CHUNK}
    (mixed,) = b.op(KimiDeltaRule(**settings), module, [q, k, v, beta, decay], [width])
    narrow = kimi and not c.flag("use_full_rank_gate")
    gate = b.linear(x, f"{module}.g_a_proj", d, shard="replicated") if narrow else x
    gate = b.linear(gate, f"{module}.{'g_b_proj' if narrow else 'g_proj'}", width)
    weight = b.parameter(f"{module}.o_norm", "weight", (d,), part="norm")
    (mixed,) = b.op(SigmoidGatedNorm(), f"{module}.o_norm", [mixed, gate], [width], [weight])
    b.keep(LayerCache("recurrent", conv_state_elements=3 * width * kernel, state_elements=width * d))
    return b.linear(mixed, f"{module}.o_proj", hidden_size, shard="row")


def forget_gate(b: BlockBuilder, x: Value, c: Config, width: int, heads: int, module: str) -> Value:
    """The logarithm of the decay of every channel; Kimi's comes through a narrow product."""
    module, kimi = f"{module}.forget_gate", c.model_type == "kimi_linear"
    shape = (1, 1, heads, 1) if kimi else (heads,)
    # Kimi K3's files have one for each channel of a head; its 96 heads read the first 96 of 128.
    shape = (width // heads,) if c.flag("use_full_rank_gate") else shape
    rates = b.parameter(module, "A_log", shape, shard="column")
    parameters = [b.parameter(module, "dt_bias", (width,), shard="column"), rates]
    if kimi:
        h = b.linear(x, f"{module}.f_a_proj", width // heads, shard="replicated")
        h = b.linear(h, f"{module}.f_b_proj", width)
        return b.unary(KimiForgetGate(num_heads=heads), h, module, parameters)
    h = b.linear(x, f"{module}.f_proj", width)
    bounded = c.flag("kda_safe_gate", True)
    return b.unary(BailingForgetGate(num_heads=heads, bounded=bounded), h, module, parameters)
