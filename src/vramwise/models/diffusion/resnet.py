"""`ResnetBlock2D` and the attention between two of them (diffusers 0.42.1 resnet.py, attention_processor.py)."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.diffusion.builder import ComponentBuilder
from vramwise.models.operations.latents import HeadedSdpa, MapToTokens, SplitHeads, ToEveryPlace, TokensToMap


def resnet(b: ComponentBuilder, x: Value, module: str, width: int, groups: int, temb: Value | None = None) -> Value:
    """Norm, silu and convolution twice beside a shortcut; `temb` is added between for every place.

    The class calls one `nonlinearity` up to three times; each call is a frame of its own.
    """
    h = b.activation(b.group_norm(x, f"{module}.norm1", groups), "silu", f"{module}.nonlinearity")
    h = b.convolution(h, f"{module}.conv1", width, 3, padding=1)
    if temb is not None:
        step = b.activation(temb, "silu", f"{module}.nonlinearity.1")
        step = b.linear(step, f"{module}.time_emb_proj", width, bias=True)
        h = b.op(ToEveryPlace(), module, [h, step], [width])[0]
    h = b.activation(b.group_norm(h, f"{module}.norm2", groups), "silu", f"{module}.nonlinearity.2")
    h = b.convolution(h, f"{module}.conv2", width, 3, padding=1)
    kept = x if x.width == width else b.convolution(x, f"{module}.conv_shortcut", width, 1)
    with_shortcut = b.inside_add(kept, h, module)
    out = b.inside_scale(with_shortcut, module)
    b.still_named_in(module, h, kept)
    return out


def mid_attention(b: ComponentBuilder, x: Value, module: str, groups: int) -> Value:
    """Attention of one head over all places of a map, with its norm and its residual."""
    tokens = b.unary(MapToTokens(), x, module)
    normed = b.unary(MapToTokens(), b.group_norm(x, f"{module}.group_norm", groups), module)
    q, k, v = (
        b.unary(SplitHeads(num_heads=1), b.linear(normed, f"{module}.{name}", x.width, bias=True), module)
        for name in ("to_q", "to_k", "to_v")
    )
    mixed = b.op(HeadedSdpa(named=False), module, [q, k, v], [x.width])[0]
    out = b.linear(mixed, f"{module}.to_out.0", x.width, bias=True)
    placed = b.op(TokensToMap(), module, [out, x], [x.width])[0]
    summed = b.inside_add(placed, x, module)
    b.still_named_in(module, placed)
    scaled = b.inside_scale(summed, module)
    b.still_named_in(module, q, k, v, normed, tokens)
    return scaled
