"""LTXVideoTransformer3DModel: attention to itself and to the text, modulated by the step's time (diffusers 0.42.1
transformer_ltx.py), of LTX-Video 0.9 to 0.9.8."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.config import Config
from vramwise.models.diffusion.builder import ComponentBuilder
from vramwise.models.operations.latents import HeadedSdpa, SplitHeads, Waves
from vramwise.models.operations.video import NormedWhole, PairsTurnedWhole, StepTable, TokenTables

CLASS_DEFAULTS: dict[str, object] = {
    "in_channels": 128, "out_channels": 128, "num_attention_heads": 32, "attention_head_dim": 64,
    "cross_attention_dim": 2048, "num_layers": 28, "caption_channels": 4096,
}  # fmt: skip
_TIMES = 256  # PixArtAlphaCombinedTimestepSizeEmbeddings


def blocks(config: Config) -> tuple[Block, ...]:
    """Streams are named as the class's arguments: hidden_states, timestep, encoder_hidden_states."""
    c = config.filled(CLASS_DEFAULTS)
    if c.flag("norm_elementwise_affine"):
        raise c.error("norm_elementwise_affine: norms with weights are not described")
    if c.get("qk_norm", "rms_norm_across_heads") != "rms_norm_across_heads":
        raise c.error(f"qk_norm: {c.get('qk_norm')!r:.40} is not described (described: rms_norm_across_heads)")
    return (_beginning(c), *(layer(c, i) for i in range(c.size("num_layers"))), _end(c))


def _width(c: Config) -> int:
    return c.size("num_attention_heads") * c.size("attention_head_dim")


def _beginning(c: Config) -> Block:
    b, width = ComponentBuilder(""), _width(c)
    tokens = b.input("hidden_states", c.size("in_channels"))
    cos, sin = b.op(TokenTables(width=width), "rope", [tokens], [width, width])
    x = b.linear(tokens, "proj_in", width, bias=True)
    waves = b.unary(Waves(width=_TIMES), b.input("timestep", 1), "time_embed", width=_TIMES)
    temb = b.time_embedding(waves, "time_embed.emb.timestep_embedder", width)
    steps = b.linear(b.activation(temb, "silu", "time_embed.silu"), "time_embed.linear", 6 * width, bias=True)
    text, name = b.input("encoder_hidden_states", c.size("caption_channels")), "caption_projection"
    text = b.activation(b.linear(text, f"{name}.linear_1", width, bias=True), "gelu", f"{name}.act_1")
    text = b.linear(text, f"{name}.linear_2", width, bias=True)
    return b.build(hidden=x, encoder=text, temb=temb, steps=steps, cos=cos, sin=sin)


def _attention(b: ComponentBuilder, c: Config, x: Value, source: Value, module: str) -> Value:
    """`LTXAttention`; to itself it turns queries and keys by their places."""
    heads, width, bias = c.size("num_attention_heads"), x.width, c.flag("attention_bias", True)
    q, k, v = (
        b.linear(one, f"{module}.{name}", width, bias=bias)
        for name, one in (("to_q", x), ("to_k", source), ("to_v", source))
    )
    q, k = b.fused_rms_norm(q, f"{module}.norm_q"), b.fused_rms_norm(k, f"{module}.norm_k")
    if source is x:
        cos, sin = b.input("cos", width), b.input("sin", width)
        q, k = (b.op(PairsTurnedWhole(), module, [one, cos, sin], [width])[0] for one in (q, k))
    parts = [b.unary(SplitHeads(num_heads=heads), one, module, width=width // heads) for one in (q, k, v)]
    mixed = b.op(HeadedSdpa(), module, parts, [width])[0]
    out = b.linear(mixed, f"{module}.to_out.0", width, bias=c.flag("attention_out_bias", True))
    b.still_named_in(module, *parts)
    return out


def layer(c: Config, index: int) -> Block:
    """`LTXVideoTransformerBlock`."""
    b, width = ComponentBuilder(f"transformer_blocks.{index}", index), _width(c)
    x, text = b.input("hidden", width), b.input("encoder", width)
    table = b.parameter("", "scale_shift_table", (6, width))
    shift, scale, gate, shift_2, scale_2, gate_2 = b.op(
        StepTable(pieces=6, wide=False), "", [b.input("steps", 6 * width)], [width] * 6, [table]
    )
    b.part = "attention"
    normed = b.unary(NormedWhole(), x, "norm1")
    normed = b.modulated(normed, scale, shift)
    attended = _attention(b, c, normed, normed, "attn1")
    x = b.add(x, b.gated(gate, attended))
    mixed = _attention(b, c, x, text, "attn2")
    b.still_named(attended)
    x = b.add(x, mixed)
    b.part = "mlp"
    third = b.unary(NormedWhole(), x, "norm2")
    third = b.modulated(third, scale_2, shift_2)
    b.still_named(normed)
    fed = b.feed_forward(third, "ff")
    x = b.add(x, b.gated(gate_2, fed))
    b.still_named(third, mixed, fed)
    return b.build(hidden=x)


def _end(c: Config) -> Block:
    b, width = ComponentBuilder(""), _width(c)
    x, table = b.input("hidden", width), b.parameter("", "scale_shift_table", (2, width))
    shift, scale = b.op(StepTable(pieces=2, wide=False), "", [b.input("temb", width)], [width] * 2, [table])
    x = b.modulated(b.layer_norm(x, "norm_out", weight=False), scale, shift)
    x = b.linear(x, "proj_out", c.size("out_channels"), bias=True)
    b.still_named(b.input("encoder", width), b.input("cos", 1), b.input("sin", 1), b.input("steps", 1))
    return b.build(sample=x)
