"""InternVL in its own code: InternViT, a projector of four joined patches, and any described language model.

Parameter names are those of `modeling_internvl_chat.py` and `modeling_intern_vit.py` in OpenGVLab/InternVL2-2B.
"""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.nested import language_model, under
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.towers import LayerScale
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.clip_layer import mlp

# Defaults of the remote InternVisionConfig.
_DEFAULTS = {
    "patch_size": 14, "image_size": 224, "hidden_size": 3200, "num_attention_heads": 25, "intermediate_size": 12_800,
    "num_hidden_layers": 48, "hidden_act": "gelu", "qk_normalization": True, "norm_type": "rms_norm",
}  # fmt: skip


def builder(name: str) -> BlockBuilder:
    return BlockBuilder(name, part="vision", modality="image")


def norm(b: BlockBuilder, x: Value, name: str, v: Config) -> Value:
    if v.text("norm_type") == "rms_norm":
        return b.rms_norm(x, name, part="vision")
    return b.layer_norm(x, name, part="vision")


def embedding(v: Config) -> Block:
    """Patches with biases, a class token, learned positions."""
    b = builder("vision_model.embeddings")
    width, patch = v.hidden_size, v.size("patch_size")
    weights = [
        b.parameter("", "class_embedding", (1, 1, width)),
        b.parameter("patch_embedding", "weight", (width, 3, patch, patch)),
        b.parameter("patch_embedding", "bias", (width,)),
        b.parameter("", "position_embedding", (1, (v.size("image_size") // patch) ** 2 + 1, width)),
    ]
    return b.build(image=b.op(Undescribed(name="an embedding of patches"), "patch_embedding", [], [width], weights)[0])


def layer(v: Config, index: int) -> Block:
    """A pre-norm encoder layer whose halves are scaled by learned vectors."""
    b = builder(f"vision_model.encoder.layers.{index}")
    heads, width = v.num_attention_heads, v.hidden_size
    x = b.input("image", width)
    h = b.linear(norm(b, x, "norm1", v), "attn.qkv", 3 * width, bias=v.flag("qkv_bias"))
    q, k, w = b.split(h, [width] * 3)
    if v.flag("qk_normalization"):
        q, k = (b.rms_norm(y, f"attn.{n}_norm", part="vision") for y, n in ((q, "q"), (k, "k")))
    q, k, w = (b.heads_first(b.heads(y, heads)) for y in (q, k, w))
    mixed = b.attention(Attention(num_heads=heads, num_key_value_heads=heads, causal=False), q, k, w, cache=None)
    h = b.linear(mixed, "attn.proj", width, bias=True, shard="row")
    x = b.add(x, b.unary(LayerScale(), h, "", [b.parameter("", "ls1", (width,))]))
    h = mlp(b, norm(b, x, "norm2", v), v, "mlp")
    return b.build(image=b.add(x, b.unary(LayerScale(), h, "", [b.parameter("", "ls2", (width,))])))


def projector(c: Config, v: Config, width: int) -> Block:
    """Norm and two linear layers over the patches that `downsample_ratio` joins."""
    ratio = c.number("downsample_ratio", 0.5)
    if not 1 / 64 <= ratio <= 1:
        raise c.error(f"downsample_ratio: expected a number from 1/64 to 1, got {ratio}")
    b = BlockBuilder("mlp1", part="projector", modality="image")
    joined = v.hidden_size * int(1 / ratio) ** 2
    x = b.unary(Undescribed(name="joined patches"), b.input("image", v.hidden_size), width=joined)
    h = b.linear(b.layer_norm(x, "0", part="projector"), "1", width, bias=True)
    return b.build(image=b.linear(b.activation(h, "gelu", "2"), "3", width, bias=True, shard="row"))


def blocks(c: Config) -> tuple[Block, ...]:
    """Vision tower, projector, language model."""
    v = (c.table("vision_config") or Config({}, c.model_id)).filled(_DEFAULTS)
    if v.hidden_size % v.num_attention_heads:
        raise c.error(f"num_attention_heads ({v.num_attention_heads}) must divide the vision tower's hidden_size")
    language = language_model(c.table("llm_config") or Config({}, c.model_id), under("language_model"))
    return (
        embedding(v), *(layer(v, i) for i in range(v.num_hidden_layers)),
        projector(c, v, language[-1].inputs["hidden"].width), *language,
    )  # fmt: skip
