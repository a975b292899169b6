"""Dots 3's tower for images: more routed experts from layer to layer, and an adapter that joins squares of patches."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.layers.routed_experts import Experts, routed_experts
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.undescribed import Undescribed

# Defaults of Dots3NoteVisionConfig (transformers 5.23).
_VISION: dict[str, object] = {
    "hidden_size": 1536, "intermediate_size": 4224, "num_hidden_layers": 42, "num_attention_heads": 24,
    "num_channels": 3, "patch_size": 14, "hidden_act": "silu", "moe_intermediate_size": 2112, "spatial_merge_size": 2,
    "num_local_experts": 64, "num_experts_per_tok": 2, "adapter_out_dim": 5120,
}  # fmt: skip
_PYRAMID = [-1] * 25 + [*range(4, 65, 4), 64]
"""Experts of each layer where a config names neither kinds of layers nor numbers."""


def expert_count(c: Config, index: int) -> int:
    """Routed experts of a layer, 0 in a dense one."""
    types, pyramid = c.items("mlp_layer_types"), c.items("pyramid_num_routed")
    kinds = pyramid or types or _PYRAMID
    if index >= len(kinds):
        raise c.error(f"kinds of {len(kinds)} layers are named, num_hidden_layers is {c.num_hidden_layers}")
    if kinds is not types:
        return max(0, Config({"pyramid_num_routed": kinds[index]}, c.model_id).size("pyramid_num_routed", least=-1))
    own = c.of_layer(index) or c
    return own.size("num_local_experts", default=c.size("num_local_experts")) if kinds[index] == "sparse" else 0


def experts_of(c: Config, index: int) -> Experts | None:
    """The routed experts of a layer, None of a dense one."""
    count = expert_count(c, index)
    return Experts(
        num_experts=count, experts_per_token=min(count, c.size("num_experts_per_tok")),
        intermediate_size=c.size("moe_intermediate_size"), function=c.text("hidden_act"), routing="corrected",
    ) if count else None  # fmt: skip


def attention(b: BlockBuilder, q: Value, k: Value, v: Value, heads: int) -> Value:
    """Every position attends to every other."""
    q, k, v = (b.heads_first(x) for x in (q, k, v))
    return b.attention(Attention(num_heads=heads, num_key_value_heads=heads, causal=False), q, k, v, cache=None)


def checked_heads(c: Config) -> int:
    if c.hidden_size % c.num_attention_heads:
        raise c.error(f"num_attention_heads ({c.num_attention_heads}) does not divide hidden_size ({c.hidden_size})")
    return c.num_attention_heads


def vision_layer(c: Config, name: str, index: int) -> Block:
    """Normed heads, rotary positions of two axes, a dense or sparse MLP."""
    b, heads = BlockBuilder(f"{name}.blocks.{index}", part="vision", modality="image"), checked_heads(c)
    x, bias = b.input("image", c.hidden_size), c.flag("attention_bias", c.flag("use_bias"))
    fused = b.linear(b.rms_norm(x, "norm1", part="vision"), "attn.qkv", 3 * x.width, bias=bias)
    q, k, v = (b.heads(piece, heads) for piece in b.split(fused, [x.width] * 3))
    q, k = b.rms_norm(q, "attn.q_norm", part="vision"), b.rms_norm(k, "attn.k_norm", part="vision")
    x = b.add(x, b.linear(attention(b, q, k, v, heads), "attn.proj", x.width, bias=bias, shard="row"))
    h, e = b.rms_norm(x, "norm2", part="vision"), experts_of(c, index)
    if e is not None:
        return b.build(image=b.add(x, routed_experts(b, h, e)))
    mlp = gated_mlp(b, h, c.intermediate_size, c.text("hidden_act"), bias=c.flag("mlp_bias"))
    return b.build(image=b.add(x, mlp))


def vision_tower(config: Config, name: str) -> tuple[Block, ...]:
    """Patches, layers, norm, and an adapter that joins squares of patches."""
    c = Config(
        {**config.values, **renamed_keys(config, {"embed_dim": "hidden_size", "num_heads": "num_attention_heads"})}
    )
    c = Config(c.values, config.model_id).filled(_VISION)
    b, side = BlockBuilder(name, part="vision", modality="image"), c.size("patch_size")
    shape, module = (c.hidden_size, c.size("num_channels"), side, side), "patch_embed.proj"
    patches = [b.parameter(module, "weight", shape), b.parameter(module, "bias", shape[:1])]
    x = b.op(Undescribed(name="an embedding of patches"), module, [], [c.hidden_size], patches)[0]
    first = b.build(image=b.rms_norm(x, "patch_embed.norm", part="vision"))
    b = BlockBuilder(name, part="projector", modality="image")
    x = b.rms_norm(b.input("image", c.hidden_size), "norm", part="vision")
    x = b.layer_norm(x, "merger.ln_q", part="projector")
    x = b.unary(Undescribed(name="joined patches"), x, width=x.width * c.size("spatial_merge_size") ** 2)
    x = b.activation(b.linear(x, "merger.mlp.0", x.width, bias=True), "gelu")
    last = b.build(image=b.linear(x, "merger.mlp.2", c.size("adapter_out_dim"), bias=True, shard="row"))
    return (first, *(vision_layer(c, name, i) for i in range(c.num_hidden_layers)), last)


def renamed_keys(c: Config, names: dict[str, str]) -> dict[str, object]:
    return {new: c.get(old) for old, new in names.items() if c.has(old)}
