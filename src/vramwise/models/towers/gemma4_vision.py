"""Gemma 4's vision tower, and the embedder of its unified models, which have none.

An image's patches are padded to as many as any image may have; pooling leaves the padding out again.
"""

from __future__ import annotations

from vramwise.models.blocks import Block, Modality, Shard, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.norms import RmsNorm
from vramwise.models.operations.padded_images import (
    PADDED_IMAGES,
    AddAxes,
    ClampByBuffers,
    PaddedPatches,
    PaddedPixels,
    PoolValid,
    RotaryByAxis,
    ValidOnly,
)

# Defaults of Gemma4VisionConfig (transformers 5.23).
VISION_DEFAULTS: dict[str, object] = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16, "num_attention_heads": 12,
    "num_key_value_heads": 12, "head_dim": 64, "hidden_activation": "gelu_pytorch_tanh", "patch_size": 16,
    "position_embedding_size": 10_240, "pooling_kernel_size": 3,
}  # fmt: skip


def _norm(b: BlockBuilder, x: Value, name: str) -> Value:
    return b.rms_norm(x, name, style="gemma4", part="vision")


def _linear(b: BlockBuilder, x: Value, c: Config, name: str, width: int, shard: Shard = "column") -> Value:
    """A product whose input and result are clamped where the config says so."""
    clipped = c.flag("use_clipped_linears")
    x = b.unary(ClampByBuffers(), x, name) if clipped else x
    x = b.linear(x, f"{name}.linear", width, shard=shard)
    return b.unary(ClampByBuffers(), x, name) if clipped else x


def layer(c: Config, name: str, index: int) -> Block:
    """Norms before and after attention and MLP, norms of all heads, rotary positions of each axis."""
    b = BlockBuilder(f"{name}.encoder.layers.{index}", part="vision", modality="image", tower_layer=True)
    heads, groups, d, inner = c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.intermediate_size
    x = b.input("image", c.hidden_size)
    h = _norm(b, x, "input_layernorm")
    q, k, v = (
        b.heads(_linear(b, h, c, f"self_attn.{n}_proj", count * d), count)
        for n, count in (("q", heads), ("k", groups), ("v", groups))
    )
    q, k = (b.unary(RotaryByAxis(), _norm(b, y, f"self_attn.{n}_norm")) for n, y in (("q", q), ("k", k)))
    q, k, v = (b.heads_first(y) for y in (q, k, b.unary(RmsNorm(style="gemma4"), v, "self_attn.v_norm")))
    h = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=groups,
            causal=False,
            style=PADDED_IMAGES,
            dropout=c.number("attention_dropout"),
        ),
        q,
        k,
        v,
        cache=None,
    )
    h = _linear(b, h, c, "self_attn.o_proj", x.width, "row")
    x = b.add(x, _norm(b, h, "post_attention_layernorm"))
    h = _norm(b, x, "pre_feedforward_layernorm")
    gate = b.activation(_linear(b, h, c, "mlp.gate_proj", inner), c.text("hidden_activation"))
    h = _linear(b, b.multiply(gate, _linear(b, h, c, "mlp.up_proj", inner)), c, "mlp.down_proj", x.width, "row")
    return b.build(image=b.add(x, _norm(b, h, "post_feedforward_layernorm")))


def tower(c: Config, name: str) -> tuple[Block, ...]:
    """Patches by a product, a table of positions for each axis, the layers, pooling of squares."""
    b = BlockBuilder(f"{name}.patch_embedder", part="vision", modality="image")
    width = c.hidden_size
    table = b.parameter("", "position_embedding_table", (2, c.size("position_embedding_size"), width))
    patches = b.parameter("input_proj", "weight", (width, 3 * c.size("patch_size") ** 2), is_linear=True)
    first = b.build(image=b.op(PaddedPatches(), "input_proj", [], [width], [patches, table])[0])
    b = BlockBuilder(name, part="vision", modality="image")
    kernel, standardized = c.size("pooling_kernel_size", least=2), c.flag("standardize")
    pooled = b.unary(PoolValid(kernel=kernel, standardized=standardized), b.input("image", width), "pooler")
    return (first, *(layer(c, name, i) for i in range(c.num_hidden_layers)), b.build(image=pooled))


def embedder(name: str, modality: Modality, width: int, out: int) -> Block:
    """The projector: a norm without weight and one product."""
    b = BlockBuilder(name, part="projector", modality=modality)
    x = b.unary(RmsNorm(style="gemma4"), b.input(modality, width), "embedding_pre_projection_norm")
    return b.build(**{modality: b.linear(x, "embedding_projection", out)})


def pixels(c: Config, name: str, out: int) -> tuple[Block, ...]:
    """Patches of pixels: norms around a product, a position for each axis, the projector, padding left out."""
    b = BlockBuilder(name, part="vision", modality="image")
    side = c.size("patch_size", default=16) * c.size("pooling_kernel_size", default=3)
    width, norms = c.size("mm_embed_dim", default=3840), (3 * side**2, "patch_ln1")
    if c.size("output_proj_dims", default=3840) != width:
        raise c.error(f"output_proj_dims must be mm_embed_dim ({width})")
    x = b.layer_norm(b.op(PaddedPixels(), "", [], [norms[0]])[0], norms[1], part="vision")
    x = b.layer_norm(b.linear(x, "patch_dense", width, bias=True), "patch_ln2", part="vision")
    positions = b.parameter("", "pos_embedding", (c.size("mm_posemb_size", default=1120), 2, width))
    x = b.layer_norm(b.unary(AddAxes(), x, "", [positions]), "pos_norm", part="vision")
    valid = BlockBuilder(name, part="projector", modality="image")
    picked = valid.build(image=valid.unary(ValidOnly(), valid.input("image", out)))
    return b.build(image=x), embedder(f"{name}.multimodal_embedder", "image", width, out), picked
