"""The vision tower of Qwen 3.5: patches of frames, learned and rotary positions, a merger to the text's width."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config

# Defaults of Qwen3_5VisionConfig (transformers 5.23).
_DEFAULTS: dict[str, Any] = {
    "depth": 27, "hidden_size": 1152, "hidden_act": "gelu_pytorch_tanh", "intermediate_size": 4304, "num_heads": 16,
    "in_channels": 3, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 3584,
    "num_position_embeddings": 2304,
}  # fmt: skip


def _patch_shape(c: Config) -> tuple[int, int, int]:
    """Frames, rows and columns of one patch; a patch may be given as rows and columns."""
    sides = c.items("patch_size") if isinstance(c.get("patch_size"), (list, tuple)) else None
    height, width = sides if sides and len(sides) == 2 else (c.size("patch_size"),) * 2
    return c.size("temporal_patch_size"), int(height), int(width)


def embedding(c: Config, name: str) -> Block:
    """Patches of frames, one convolution each, plus learned positions."""
    b = BlockBuilder(name, part="vision", modality="image")
    shape = (c.hidden_size, c.size("in_channels"), *_patch_shape(c))
    weights = [b.parameter("patch_embed.proj", "weight", shape), b.parameter("patch_embed.proj", "bias", shape[:1])]
    patches = b.op("patch_embedding", "patch_embed", [], [c.hidden_size], weights)[0]
    rows = c.size("num_position_embeddings")
    positions = b.embedding("pos_embed", rows, c.hidden_size, ids="patch_ids", part="vision", shard="replicated")
    return b.build(image=b.add(patches, positions))


def mlp(b: BlockBuilder, x: Value, within: str, widths: tuple[int, int], function: str) -> Value:
    """linear_fc2(act(linear_fc1(x)))."""
    h = b.activation(b.linear(x, f"{within}linear_fc1", widths[0], bias=True), function, f"{within}act_fn")
    return b.linear(h, f"{within}linear_fc2", widths[1], bias=True, shard="row")


def layer(c: Config, name: str, index: int) -> Block:
    """A pre-norm encoder layer; every image attends to itself."""
    b = BlockBuilder(f"{name}.blocks.{index}", part="vision", modality="image")
    width, heads = c.hidden_size, c.size("num_heads")
    if width % heads:
        raise c.error(f"num_heads ({heads}) of the vision tower does not divide its hidden_size ({width})")
    x = b.input("image", width)
    fused = b.linear(b.layer_norm(x, "norm1", part="vision"), "attn.qkv", 3 * width, bias=True)
    q, k, v = (b.heads_first(b.heads(piece, heads)) for piece in b.split(fused, [width] * 3))
    q, k = b.rotary(q, k)
    mixed = b.attention(q, k, v, num_heads=heads, num_key_value_heads=heads, causal=False, cache=None)
    x = b.add(x, b.linear(mixed, "attn.proj", width, bias=True, shard="row"))
    h = b.layer_norm(x, "norm2", part="vision")
    return b.build(image=b.add(x, mlp(b, h, "mlp.", (c.intermediate_size, width), c.text("hidden_act"))))


def merger(c: Config, name: str) -> Block:
    """The projector: squares of neighbouring patches become one token of the text's width."""
    b = BlockBuilder(f"{name}.merger", part="projector", modality="image")
    x = b.layer_norm(b.input("image", c.hidden_size), "norm", part="projector")
    joined = x.width * c.size("spatial_merge_size") ** 2
    x = b.unary("merged_patches", x, width=joined)
    return b.build(image=mlp(b, x, "", (joined, c.size("out_hidden_size")), "gelu"))


def vision_tower(c: Config, name: str) -> tuple[Block, ...]:
    """Embedding, encoder layers, merger; they run only for batches with images."""
    c = c.filled(_DEFAULTS)
    return (embedding(c, name), *(layer(c, name, i) for i in range(c.size("depth"))), merger(c, name))
