"""FluxTransformer2DModel: layers of two streams, then layers of both in one (diffusers 0.42.1 transformer_flux.py)."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.config import Config
from vramwise.models.diffusion.builder import ComponentBuilder
from vramwise.models.diffusion.checked import number_of_layers
from vramwise.models.diffusion.modulation import continuous_norm, fed, modulated_norm, step_embedding
from vramwise.models.operations.latents import (
    AlongSecond,
    HeadedSdpa,
    PairsTurned,
    PartedAsBefore,
    SplitHeads,
    WaveTables,
)
from vramwise.models.operations.simple import Concatenate

CLASS_DEFAULTS: dict[str, object] = {
    "patch_size": 1, "in_channels": 64, "num_layers": 19, "num_single_layers": 38, "attention_head_dim": 128,
    "num_attention_heads": 24, "joint_attention_dim": 4096, "pooled_projection_dim": 768,
}  # fmt: skip


def blocks(config: Config) -> tuple[Block, ...]:
    """Streams are named as the arguments of the class."""
    c = config.filled(CLASS_DEFAULTS)
    dual = (dual_layer(c, i) for i in range(c.size("num_layers")))
    single = (single_layer(c, i) for i in range(number_of_layers(c, "num_single_layers", least=0)))
    return (_beginning(c), *dual, *single, _end(c))


def width_of(c: Config) -> int:
    """Width of the streams."""
    return c.size("num_attention_heads") * c.size("attention_head_dim")


def _beginning(c: Config) -> Block:
    b, width = ComponentBuilder(""), width_of(c)
    x = b.linear(b.input("hidden_states", c.size("in_channels")), "x_embedder", width, bias=True)
    temb = step_embedding(b, "timestep", "time_text_embed.timestep_embedder", width)
    if c.flag("guidance_embeds"):
        temb = b.add(temb, step_embedding(b, "guidance", "time_text_embed.guidance_embedder", width))
    pooled = b.input("pooled_projections", c.size("pooled_projection_dim"))
    temb = b.add(temb, b.time_embedding(pooled, "time_text_embed.text_embedder", width))
    text = b.linear(
        b.input("encoder_hidden_states", c.size("joint_attention_dim")), "context_embedder", width, bias=True
    )
    tables = [b.input("txt_ids", 3), b.input("img_ids", 3)]
    head = c.size("attention_head_dim")
    cos, sin = b.op(WaveTables(width=head), "pos_embed", tables, [head, head])
    return b.build(hidden=x, encoder=text, temb=temb, cos=cos, sin=sin)


def _projected(b: ComponentBuilder, c: Config, x: Value, names: tuple[str, str, str]) -> list[Value]:
    """Queries, keys and values (batch, tokens, heads, d)."""
    heads = c.size("num_attention_heads")
    flat = [b.linear(x, f"attn.{name}", x.width, bias=True) for name in names]
    return [b.unary(SplitHeads(num_heads=heads), one, "attn", width=x.width // heads) for one in flat]


def _attention(b: ComponentBuilder, q: Value, k: Value, v: Value, width: int) -> Value:
    cos, sin = b.input("cos", q.width), b.input("sin", q.width)
    q, k = (b.op(PairsTurned(), "attn", [one, cos, sin], [one.width])[0] for one in (q, k))
    return b.op(HeadedSdpa(), "attn", [q, k, v], [width])[0]


def dual_layer(c: Config, index: int) -> Block:
    """`FluxTransformerBlock`: both streams have weights of their own and attend together."""
    b, width = ComponentBuilder(f"transformer_blocks.{index}", index), width_of(c)
    x, text, temb = b.input("hidden", width), b.input("encoder", width), b.input("temb", width)
    normed, (gate, shift_2, scale_2, gate_2) = modulated_norm(b, x, temb, "norm1", 6)
    normed_text, (c_gate, c_shift, c_scale, c_gate_2) = modulated_norm(b, text, temb, "norm1_context", 6)
    b.part = "attention"
    q, k, v = _projected(b, c, normed, ("to_q", "to_k", "to_v"))
    added = _projected(b, c, normed_text, ("add_q_proj", "add_k_proj", "add_v_proj"))
    q, k = b.fused_rms_norm(q, "attn.norm_q"), b.fused_rms_norm(k, "attn.norm_k")
    added[0], added[1] = (
        b.fused_rms_norm(added[0], "attn.norm_added_q"),
        b.fused_rms_norm(added[1], "attn.norm_added_k"),
    )
    joined = [
        b.op(AlongSecond(), "attn", [first, second], [first.width])[0]
        for first, second in zip(added, (q, k, v), strict=True)
    ]
    mixed = _attention(b, joined[0], joined[1], joined[2], width)
    mixed_text, mixed = b.op(PartedAsBefore(), "attn", [mixed, text], [width, width])
    out = b.linear(mixed, "attn.to_out.0", width, bias=True)
    out_text = b.linear(mixed_text, "attn.to_add_out", width, bias=True)
    b.still_named_in("attn", *added, *joined)
    b.part = "mlp"
    gated = b.gated(gate, out)
    x = b.add(x, gated)
    x, names = fed(b, x, "norm2", "ff", (shift_2, scale_2, gate_2), normed)
    gated_text = b.gated(c_gate, out_text)
    text = b.add(text, gated_text)
    text, names_of_text = fed(b, text, "norm2_context", "ff_context", (c_shift, c_scale, c_gate_2), normed_text)
    b.still_named(out, out_text, gated, *names, gated_text, names_of_text[0])
    return b.build(encoder=text, hidden=x)


def single_layer(c: Config, index: int) -> Block:
    """`FluxSingleTransformerBlock`: both streams one behind the other, attention and MLP side by side."""
    b, width = ComponentBuilder(f"single_transformer_blocks.{index}", index), width_of(c)
    image, text, temb = b.input("hidden", width), b.input("encoder", width), b.input("temb", width)
    x = b.op(AlongSecond(), "", [text, image], [width])[0]
    normed, (gate,) = modulated_norm(b, x, temb, "norm", 3)
    mlp = b.activation(b.linear(normed, "proj_mlp", 4 * width, bias=True), "gelu", "act_mlp")
    b.part = "attention"
    q, k, v = _projected(b, c, normed, ("to_q", "to_k", "to_v"))
    q, k = b.fused_rms_norm(q, "attn.norm_q"), b.fused_rms_norm(k, "attn.norm_k")
    mixed = _attention(b, q, k, v, width)
    b.part = "mlp"
    both = b.op(Concatenate(), "", [mixed, mlp], [5 * width])[0]
    out = b.gated(gate, b.linear(both, "proj_out", width, bias=True))
    b.still_named(both)
    joined = b.add(x, out)
    b.still_named(out, x, normed, mlp, mixed)
    text, image = b.op(PartedAsBefore(), "", [joined, text], [width, width])
    return b.build(encoder=text, hidden=image)


def _end(c: Config) -> Block:
    """`AdaLayerNormContinuous` and the projection to the latents' channels."""
    b, width = ComponentBuilder(""), width_of(c)
    x, temb = b.input("hidden", width), b.input("temb", width)
    x = continuous_norm(b, x, temb, "norm_out")
    patch = c.size("patch_size") ** 2
    out = b.linear(x, "proj_out", patch * c.size("out_channels", default=c.size("in_channels")), bias=True)
    b.still_named(b.input("cos", 1), b.input("sin", 1), b.input("encoder", width))
    return b.build(latents=out)
