"""WanTransformer3DModel: attention to itself and to the text, norms and gates in fp32 (diffusers 0.42.1
transformer_wan.py), of Wan 2.1 and of both experts of Wan 2.2."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.config import Config
from vramwise.models.diffusion.builder import ComponentBuilder
from vramwise.models.operations.latents import HeadedSdpa, MapToTokens, PatchesToMap, SplitHeads, Waves
from vramwise.models.operations.video import GatedSumInFp32, GridTables, NormedInFp32, PairsWritten, StepTable

CLASS_DEFAULTS: dict[str, object] = {
    "patch_size": [1, 2, 2], "num_attention_heads": 40, "attention_head_dim": 128, "in_channels": 16,
    "out_channels": 16, "text_dim": 4096, "freq_dim": 256, "ffn_dim": 13824, "num_layers": 40,
}  # fmt: skip
KEPT_IN_FP32 = ("time_embedder", "scale_shift_table", "norm1", "norm2", "norm3")
"""`_keep_in_fp32_modules` of the class."""


def blocks(config: Config) -> tuple[Block, ...]:
    """Streams are named as the class's arguments: hidden_states, timestep, encoder_hidden_states."""
    c = config.filled(CLASS_DEFAULTS)
    for key in ("image_dim", "added_kv_proj_dim", "pos_embed_seq_len"):
        if c.get(key) is not None:
            raise c.error(f"{key}: a denoiser that looks at images is not described")
    if c.get("qk_norm", "rms_norm_across_heads") != "rms_norm_across_heads":
        raise c.error(f"qk_norm: {c.get('qk_norm')!r:.40} is not described (described: rms_norm_across_heads)")
    return (_beginning(c), *(layer(c, i) for i in range(c.size("num_layers"))), _end(c))


def _width(c: Config) -> int:
    return c.size("num_attention_heads") * c.size("attention_head_dim")


def _patch(c: Config) -> tuple[int, ...]:
    sides = c.items("patch_size") or []
    if len(sides) != 3 or not all(isinstance(side, int) and 0 < side < 64 for side in sides):
        raise c.error("patch_size: expected three whole numbers")
    return tuple(sides)


def _beginning(c: Config) -> Block:
    b, width, patch, head = ComponentBuilder(""), _width(c), _patch(c), c.size("attention_head_dim")
    x = b.input("hidden_states", c.size("in_channels"))
    cos, sin = b.op(GridTables(width=head, patch=patch), "rope", [x], [head, head])
    x = b.convolution(x, "patch_embedding", width, patch, stride=patch, dimensions=3)
    x = b.unary(MapToTokens(copies=True), x)
    times = c.size("freq_dim")
    waves = b.unary(Waves(width=times), b.input("timestep", 1), "condition_embedder", width=times)
    temb = b.time_embedding(waves, "condition_embedder.time_embedder", width)
    acted = b.activation(temb, "silu", "condition_embedder.act_fn")
    steps = b.linear(acted, "condition_embedder.time_proj", 6 * width, bias=True)
    text, name = b.input("encoder_hidden_states", c.size("text_dim")), "condition_embedder.text_embedder"
    text = b.activation(b.linear(text, f"{name}.linear_1", width, bias=True), "gelu", f"{name}.act_1")
    text = b.linear(text, f"{name}.linear_2", width, bias=True)
    return b.build(hidden=x, encoder=text, temb=temb, steps=steps, cos=cos, sin=sin)


def _attention(b: ComponentBuilder, c: Config, x: Value, source: Value, module: str) -> Value:
    """`WanAttention`; to itself it turns queries and keys by their places."""
    heads, width = c.size("num_attention_heads"), x.width
    q, k, v = (
        b.linear(one, f"{module}.{name}", width, bias=True)
        for name, one in (("to_q", x), ("to_k", source), ("to_v", source))
    )
    q, k = b.fused_rms_norm(q, f"{module}.norm_q"), b.fused_rms_norm(k, f"{module}.norm_k")
    parts = [b.unary(SplitHeads(num_heads=heads), one, module, width=width // heads) for one in (q, k, v)]
    if source is x:
        cos, sin = b.input("cos", width // heads), b.input("sin", width // heads)
        parts[:2] = [b.op(PairsWritten(), module, [one, cos, sin], [one.width])[0] for one in parts[:2]]
    mixed = b.op(HeadedSdpa(), module, parts, [width])[0]
    out = b.linear(mixed, f"{module}.to_out.0", width, bias=True)
    b.still_named_in(module, *parts)
    return out


def layer(c: Config, index: int) -> Block:
    """`WanTransformerBlock`."""
    b, width = ComponentBuilder(f"blocks.{index}", index), _width(c)
    x, text = b.input("hidden", width), b.input("encoder", width)
    table = b.parameter("", "scale_shift_table", (1, 6, width))
    shift, scale, gate, shift_2, scale_2, gate_2 = b.op(
        StepTable(pieces=6), "", [b.input("steps", 6 * width)], [width] * 6, [table]
    )
    b.part = "attention"
    normed = b.op(NormedInFp32(), "", [x, scale, shift], [width])[0]
    out = _attention(b, c, normed, normed, "attn1")
    x = b.op(GatedSumInFp32(), "", [x, out, gate], [width])[0]
    weights = [b.parameter("norm2", leaf, (width,), part="norm") for leaf in ("weight", "bias")]
    affine = c.flag("cross_attn_norm", True)
    second = b.op(NormedInFp32(), "", [x], [width], weights if affine else [])[0] if affine else x
    b.still_named(normed)
    mixed = _attention(b, c, second, text, "attn2")
    b.still_named(out)
    x = b.add(x, mixed)
    b.part = "mlp"
    third = b.op(NormedInFp32(), "", [x, scale_2, shift_2], [width])[0]
    b.still_named(second)
    fed = b.feed_forward(third, "ffn", inner=c.size("ffn_dim"))
    x = b.op(GatedSumInFp32(wide=True), "", [x, fed, gate_2], [width])[0]
    b.still_named(third, mixed, fed)
    return b.build(hidden=x)


def _end(c: Config) -> Block:
    b, width = ComponentBuilder(""), _width(c)
    x, table = b.input("hidden", width), b.parameter("", "scale_shift_table", (1, 2, width))
    shift, scale = b.op(StepTable(pieces=2, wide=False), "", [b.input("temb", width)], [width] * 2, [table])
    x = b.op(NormedInFp32(), "", [x, scale, shift], [width])[0]
    out, places = c.size("out_channels"), 1
    for side in _patch(c):
        places *= side
    x = b.linear(x, "proj_out", out * places, bias=True)
    b.still_named(b.input("encoder", width), b.input("cos", 1), b.input("sin", 1), b.input("steps", 1))
    return b.build(sample=b.op(PatchesToMap(), "", [x, b.input("hidden_states", 1)], [out])[0])
