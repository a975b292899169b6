"""SD3Transformer2DModel: two streams that attend together, of Stable Diffusion 3 and 3.5 (diffusers 0.42.1
transformer_sd3.py, attention.py `JointTransformerBlock`, attention_processor.py `JointAttnProcessor2_0`)."""

from __future__ import annotations

from vramwise.models.blocks import Block, Parameter, Value
from vramwise.models.config import Config
from vramwise.models.diffusion.builder import ComponentBuilder
from vramwise.models.diffusion.checked import whole_numbers
from vramwise.models.diffusion.modulation import continuous_norm, fed, modulated_norm, step_embedding
from vramwise.models.operations.latents import (
    CroppedPositions,
    HeadsFirstSdpa,
    MapToTokens,
    PartedAsBefore,
    PatchesToMap,
    SplitHeads,
    TokensBehind,
)
from vramwise.models.operations.simple import HeadsFirst

CLASS_DEFAULTS: dict[str, object] = {
    "sample_size": 128, "patch_size": 2, "in_channels": 16, "num_layers": 18, "attention_head_dim": 64,
    "num_attention_heads": 18, "joint_attention_dim": 4096, "caption_projection_dim": 1152,
    "pooled_projection_dim": 2048, "out_channels": 16, "pos_embed_max_size": 96,
}  # fmt: skip


def blocks(config: Config) -> tuple[Block, ...]:
    """Streams are named as the class's arguments."""
    c = config.filled(CLASS_DEFAULTS)
    count = c.size("num_layers")
    dual = set(whole_numbers(c, "dual_attention_layers", least=0))
    layers = (joint_layer(c, i, last=i + 1 == count, twice=i in dual) for i in range(count))
    return (_beginning(c), *layers, _end(c))


def buffers(config: Config) -> tuple[Parameter, ...]:
    """The square table of positions, which its files hold."""
    c = config.filled(CLASS_DEFAULTS)
    side = c.size("pos_embed_max_size")
    return (Parameter("pos_embed.pos_embed", (1, side * side, _width(c)), "embedding"),)


def _width(c: Config) -> int:
    return c.size("num_attention_heads") * c.size("attention_head_dim")


def _beginning(c: Config) -> Block:
    b, width, patch = ComponentBuilder(""), _width(c), c.size("patch_size")
    x = b.convolution(b.input("hidden_states", c.size("in_channels")), "pos_embed.proj", width, patch, stride=patch)
    x = b.unary(CroppedPositions(), b.unary(MapToTokens(), x, "pos_embed"), "pos_embed")
    temb = step_embedding(b, "timestep", "time_text_embed.timestep_embedder", width)
    pooled = b.input("pooled_projections", c.size("pooled_projection_dim"))
    temb = b.add(temb, b.time_embedding(pooled, "time_text_embed.text_embedder", width))
    text = b.input("encoder_hidden_states", c.size("joint_attention_dim"))
    text = b.linear(text, "context_embedder", c.size("caption_projection_dim"), bias=True)
    return b.build(hidden=x, encoder=text, temb=temb)


def _heads(
    b: ComponentBuilder, c: Config, x: Value, names: tuple[str, str, str], norms: tuple[str, str], module: str
) -> list[Value]:
    """Queries, keys and values (batch, heads, tokens, d), the first two normed where the class does."""
    heads = c.size("num_attention_heads")
    flat = [b.linear(x, f"{module}.{name}", x.width, bias=True) for name in names]
    found = [
        b.unary(HeadsFirst(), b.unary(SplitHeads(num_heads=heads), one, module, width=x.width // heads), module)
        for one in flat
    ]
    if c.get("qk_norm") == "rms_norm":
        for i, norm in enumerate(norms):
            found[i] = b.rms_norm(found[i], f"{module}.{norm}", style="t5")
    elif c.get("qk_norm") is not None:
        raise c.error(f"qk_norm: {c.get('qk_norm')!r:.40} is not described (described: rms_norm, null)")
    return found


_OWN, _OWN_NORMS = ("to_q", "to_k", "to_v"), ("norm_q", "norm_k")
_ADDED, _ADDED_NORMS = ("add_q_proj", "add_k_proj", "add_v_proj"), ("norm_added_q", "norm_added_k")


def _joint_attention(b: ComponentBuilder, c: Config, x: Value, text: Value, *, last: bool) -> tuple[Value, Value]:
    width = x.width
    own = _heads(b, c, x, _OWN, _OWN_NORMS, "attn")
    added = _heads(b, c, text, _ADDED, _ADDED_NORMS, "attn")
    joined = [b.op(TokensBehind(), "attn", [one, other], [one.width])[0] for one, other in zip(own, added, strict=True)]
    mixed = b.op(HeadsFirstSdpa(), "attn", joined, [width])[0]
    out, out_text = b.op(PartedAsBefore(), "attn", [mixed, x], [width, width])
    if not last:
        out_text = b.linear(out_text, "attn.to_add_out", width, bias=True)
    out = b.linear(out, "attn.to_out.0", width, bias=True)
    b.still_named_in("attn", *added, *joined)
    return out, out_text


def _second_attention(b: ComponentBuilder, c: Config, x: Value) -> Value:
    q, k, v = _heads(b, c, x, _OWN, _OWN_NORMS, "attn2")
    mixed = b.op(HeadsFirstSdpa(), "attn2", [q, k, v], [x.width])[0]
    out = b.linear(mixed, "attn2.to_out.0", x.width, bias=True)
    b.still_named_in("attn2", q, k, v)
    return out


def joint_layer(c: Config, index: int, *, last: bool, twice: bool) -> Block:
    """`JointTransformerBlock`; the last one hands on no text, some attend a second time to the image alone."""
    b, width = ComponentBuilder(f"transformer_blocks.{index}", index), _width(c)
    x, text, temb = b.input("hidden", width), b.input("encoder", width), b.input("temb", width)
    second: tuple[Value, ...] = ()
    if twice:
        emb = b.linear(b.activation(temb, "silu", "norm1.silu"), "norm1.linear", 9 * width, bias=True)
        shift, scale, gate, shift_2, scale_2, gate_2, other_shift, other_scale, other_gate = b.pieces(emb, 9, "norm1")
        plain = b.layer_norm(x, "norm1.norm", weight=False)
        normed = b.modulated(plain, scale, shift, "norm1")
        second = (b.modulated(plain, other_scale, other_shift, "norm1"), other_gate)
    else:
        normed, (gate, shift_2, scale_2, gate_2) = modulated_norm(b, x, temb, "norm1", 6)
    of_text: tuple[Value, ...] = ()
    if last:
        normed_text = continuous_norm(b, text, temb, "norm1_context")
    else:
        normed_text, of_text = modulated_norm(b, text, temb, "norm1_context", 6)
    b.part = "attention"
    out, out_text = _joint_attention(b, c, normed, normed_text, last=last)
    b.part = "mlp"
    gated = b.gated(gate, out)
    b.still_named(out)
    x = b.add(x, gated)
    names: tuple[Value, ...] = (gated,)
    if second:
        again = _second_attention(b, c, second[0])
        gated_again = b.gated(second[1], again)
        x = b.add(x, gated_again)
        names = (*names, gated_again, second[0])
    x, more = fed(b, x, "norm2", "ff", (shift_2, scale_2, gate_2), normed)
    names = (*names, *more)
    if last:
        b.still_named(*names, normed_text, out_text)
        return b.build(hidden=x)
    c_gate, c_shift, c_scale, c_gate_2 = of_text
    gated_text = b.gated(c_gate, out_text)
    text = b.add(text, gated_text)
    text, of_feed = fed(b, text, "norm2_context", "ff_context", (c_shift, c_scale, c_gate_2), normed_text)
    b.still_named(*names, gated_text, of_feed[0])
    return b.build(encoder=text, hidden=x)


def _end(c: Config) -> Block:
    b, width = ComponentBuilder(""), _width(c)
    x = continuous_norm(b, b.input("hidden", width), b.input("temb", width), "norm_out")
    patch, channels = c.size("patch_size"), c.size("out_channels")
    x = b.linear(x, "proj_out", patch * patch * channels, bias=True)
    return b.build(sample=b.op(PatchesToMap(), "", [x, b.input("hidden_states", 1)], [channels])[0])
