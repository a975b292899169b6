"""QwenImageTransformer2DModel: two streams that attend together (diffusers 0.42.1 transformer_qwenimage.py)."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.config import Config
from vramwise.models.diffusion.builder import ComponentBuilder
from vramwise.models.diffusion.modulation import continuous_norm, step_embedding
from vramwise.models.operations.latents import AlongSecond, HeadedSdpa, PartedAsBefore, SplitHeads
from vramwise.models.operations.video import ComplexTables, PairsAsComplex

CLASS_DEFAULTS: dict[str, object] = {
    "patch_size": 2, "in_channels": 64, "out_channels": 16, "num_layers": 60, "attention_head_dim": 128,
    "num_attention_heads": 24, "joint_attention_dim": 3584,
}  # fmt: skip


def blocks(config: Config) -> tuple[Block, ...]:
    """Streams are named as the class's arguments: hidden_states, encoder_hidden_states, timestep."""
    c = config.filled(CLASS_DEFAULTS)
    for key in ("zero_cond_t", "use_additional_t_cond", "use_layer3d_rope", "guidance_embeds"):
        if c.flag(key):
            raise c.error(f"{key}: true is not described")
    return (_beginning(c), *(layer(c, i) for i in range(c.size("num_layers"))), _end(c))


def _width(c: Config) -> int:
    return c.size("num_attention_heads") * c.size("attention_head_dim")


def _beginning(c: Config) -> Block:
    b, width, half = ComponentBuilder(""), _width(c), c.size("attention_head_dim") // 2
    x = b.linear(b.input("hidden_states", c.size("in_channels")), "img_in", width, bias=True)
    text = b.rms_norm(b.input("encoder_hidden_states", c.size("joint_attention_dim")), "txt_norm", style="t5")
    text = b.linear(text, "txt_in", width, bias=True)
    temb = step_embedding(b, "timestep", "time_text_embed.timestep_embedder", width)
    of_image, of_text, *cached = b.op(ComplexTables(width=half), "pos_embed", [x, text], [half] * 4)
    for i, one in enumerate(cached):
        b.hand_on(f"cached {i}", one)
    return b.build(hidden=x, encoder=text, temb=temb, places=of_image, order=of_text)


def _projected(b: ComponentBuilder, c: Config, x: Value, names: tuple[str, str, str]) -> list[Value]:
    heads = c.size("num_attention_heads")
    flat = [b.linear(x, f"attn.{name}", x.width, bias=True) for name in names]
    return [b.unary(SplitHeads(num_heads=heads), one, "attn", width=x.width // heads) for one in flat]


def _joint_attention(b: ComponentBuilder, c: Config, x: Value, text: Value) -> tuple[Value, Value]:
    width = x.width
    own = _projected(b, c, x, ("to_q", "to_k", "to_v"))
    added = _projected(b, c, text, ("add_q_proj", "add_k_proj", "add_v_proj"))
    for parts, names in ((own, ("norm_q", "norm_k")), (added, ("norm_added_q", "norm_added_k"))):
        parts[:2] = [b.rms_norm(one, f"attn.{name}", style="t5") for one, name in zip(parts[:2], names, strict=True)]
    for parts, table in ((own, b.input("places", 1)), (added, b.input("order", 1))):
        parts[:2] = [b.op(PairsAsComplex(), "attn", [one, table], [one.width])[0] for one in parts[:2]]
    joined = [
        b.op(AlongSecond(), "attn", [first, second], [second.width])[0]
        for first, second in zip(added, own, strict=True)
    ]
    mixed = b.op(HeadedSdpa(), "attn", joined, [width])[0]
    of_text, of_image = b.op(PartedAsBefore(), "attn", [mixed, text], [width, width])
    out = b.linear(of_image, "attn.to_out.0", width, bias=True)
    out_text = b.linear(of_text, "attn.to_add_out", width, bias=True)
    b.still_named_in("attn", *own, *added, *joined, mixed)
    return out, out_text


def layer(c: Config, index: int) -> Block:
    """`QwenImageTransformerBlock`: every step of it has a name of its own to the end."""
    b, width = ComponentBuilder(f"transformer_blocks.{index}", index), _width(c)
    x, text, temb = b.input("hidden", width), b.input("encoder", width), b.input("temb", width)
    pieces = []
    for name in ("img_mod", "txt_mod"):
        emb = b.linear(b.activation(temb, "silu", f"{name}.0"), f"{name}.1", 6 * width, bias=True)
        pieces.append(b.pieces(emb, 6, ""))
    (shift, scale, gate, shift_2, scale_2, gate_2), (c_shift, c_scale, c_gate, c_shift_2, c_scale_2, c_gate_2) = pieces
    normed = b.layer_norm(x, "img_norm1", weight=False)
    modulated = b.modulated(normed, scale, shift)
    normed_text = b.layer_norm(text, "txt_norm1", weight=False)
    modulated_text = b.modulated(normed_text, c_scale, c_shift)
    b.part = "attention"
    out, out_text = _joint_attention(b, c, modulated, modulated_text)
    b.part = "mlp"
    names = [normed, modulated, normed_text, modulated_text, out, out_text]
    x = b.add(x, b.gated(gate, out))
    text = b.add(text, b.gated(c_gate, out_text))
    streams = []
    rows = (("img", x, shift_2, scale_2, gate_2), ("txt", text, c_shift_2, c_scale_2, c_gate_2))
    for name, stream, a_shift, a_scale, a_gate in rows:
        h = b.layer_norm(stream, f"{name}_norm2", weight=False)
        m = b.modulated(h, a_scale, a_shift)
        fed = b.feed_forward(m, f"{name}_mlp")
        streams.append(b.add(stream, b.gated(a_gate, fed)))
        names += [h, m, fed]
    b.still_named(*names)
    return b.build(hidden=streams[0], encoder=streams[1])


def _end(c: Config) -> Block:
    b, width = ComponentBuilder(""), _width(c)
    x = continuous_norm(b, b.input("hidden", width), b.input("temb", width), "norm_out")
    out = b.linear(x, "proj_out", c.size("patch_size") ** 2 * c.size("out_channels"), bias=True)
    b.still_named(*(b.input(name, 1) for name in ("encoder", "places", "order", "cached 0", "cached 1")))
    return b.build(latents=out)
