"""CLIP and SigLIP as models of their own: a tower for text, one for images, and what compares them.

Each row of the batch holds a text and an image, and the loss compares all of them.
"""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Modality, Part
from vramwise.models.config import Config
from vramwise.models.families.siglip import mlp, pooling_weights

TEXT_DEFAULTS: dict[str, dict[str, Any]] = {
    "clip": {"vocab_size": 49408, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12,
             "num_attention_heads": 8, "max_position_embeddings": 77, "hidden_act": "quick_gelu"},
    "siglip": {"vocab_size": 32000, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
               "num_attention_heads": 12, "max_position_embeddings": 64, "hidden_act": "gelu_pytorch_tanh"},
}  # fmt: skip
"""Defaults of `CLIPTextConfig` and `SiglipTextConfig`."""
VISION_DEFAULTS: dict[str, Any] = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_channels": 3, "image_size": 224, "patch_size": 32, "hidden_act": "quick_gelu",
}  # fmt: skip
"""Defaults of `CLIPVisionConfig`."""
SIGLIP_VISION_DEFAULTS = {**VISION_DEFAULTS, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh"}
"""Defaults of `SiglipVisionConfig`."""


def task(c: Config) -> str:
    """Neither predicts tokens; a SigLIP without its pooling head has nothing to compare."""
    vision = c.table("vision_config") or Config({})
    return "none" if c.model_type == "siglip" and not vision.flag("vision_use_head", True) else "contrastive"


def loss(c: Config) -> str:
    """SigLIP takes every pair for itself."""
    return "pairwise-sigmoid" if c.model_type == "siglip" and task(c) == "contrastive" else ""


def layer(c: Config, name: str, index: int, part: Part | None = None, modality: Modality = "text") -> Block:
    """A pre-norm layer of either tower; CLIP's text looks back only. A tower beside a language model has no numbers."""
    number = index if modality == "text" else None
    b = BlockBuilder(f"{name}.encoder.layers.{index}", layer=number, part=part or "attention", modality=modality)
    heads, stream = c.num_attention_heads, "image" if part else "hidden"
    x = b.input(stream, c.hidden_size)
    if x.width % heads:
        raise c.error(f"num_attention_heads ({heads}) does not divide hidden_size ({x.width})")
    h = b.layer_norm(x, "layer_norm1", part=part or "norm")
    q, k, v = (
        b.heads_first(b.heads(b.linear(h, f"self_attn.{piece}_proj", x.width, bias=True), heads)) for piece in "qkv"
    )
    mixed = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=heads, dropout=c.number("attention_dropout"), cache=None,
        causal=part is None and c.flag("looks_back"),
    )  # fmt: skip
    x = b.add(x, b.linear(mixed, "self_attn.out_proj", x.width, bias=True, shard="row"))
    b.part = part or "mlp"
    h = mlp(b, b.layer_norm(x, "layer_norm2", part=part or "norm"), c, "mlp")
    return b.build(**{stream: b.add(x, h)})


def text_tower(c: Config, clip: bool) -> tuple[Block, ...]:
    """Tokens and positions, layers, final norm; SigLIP's ends in a projection of its last token."""
    b = BlockBuilder("text_model.embeddings", part="embedding")
    x, positions = b.embedding("token_embedding", c.vocab_size, c.hidden_size), c.size("max_position_embeddings")
    table = b.parameter("position_embedding", "weight", (positions, x.width))
    ids = {"ids": "position_ids", "buffer_rows": positions}
    x = b.add(x, b.op("embedding", "position_embedding", [], [x.width], [table], **ids)[0])
    end = BlockBuilder("text_model", part="head")
    y = end.layer_norm(end.input("hidden", x.width), "final_layer_norm")
    if clip:
        y = end.unary("token_of_each_row", y)
    else:
        width = c.size("projection_size", default=x.width)
        y = end.unary("hold", end.linear(end.unary("first_token", y), "head", width, bias=True))
    layers = (layer(c, "text_model", i) for i in range(c.num_hidden_layers))
    return (b.build(hidden=x), *layers, end.build(hidden=y))


def clip_vision_tower(c: Config) -> tuple[Block, ...]:
    """Patches without bias, a class token, norms before and after the layers."""
    b = BlockBuilder("vision_model", part="vision")
    width, patch, channels = c.hidden_size, c.size("patch_size"), c.size("num_channels")
    tokens = (c.size("image_size") // patch) ** 2 + 1
    token = b.parameter("embeddings", "class_embedding", (width,))
    weight = b.parameter("embeddings.patch_embedding", "weight", (width, channels, patch, patch))
    table = b.parameter("embeddings.position_embedding", "weight", (tokens, width))
    settings: dict[str, Any] = {"image_size": c.size("image_size"), "num_channels": channels}
    x = b.op("pixel_patches", "embeddings.patch_embedding", [], [width], [weight], **settings)[0]
    x = b.unary("class_token_first", x, "embeddings", [token])
    x = b.add(x, b.op("buffered_positions", "embeddings.position_embedding", [], [width], [table])[0])
    x = b.layer_norm(x, "pre_layrnorm", part="vision")
    end = BlockBuilder("vision_model", part="vision")
    y = end.layer_norm(end.unary("first_token", end.input("image", width)), "post_layernorm", part="vision")
    layers = (layer(c, "vision_model", i, "vision") for i in range(c.num_hidden_layers))
    return (b.build(image=x), *layers, end.build(image=y))


def comparison(c: Config, text: Config, vision: Config) -> Block:
    """Projections of both towers to one width and to unit length, their similarities times a learned scale."""
    b = BlockBuilder("", part="projector")
    width = c.size("projection_dim", default=512)
    image = b.unary("unit_length", b.linear(b.input("image", vision.hidden_size), "visual_projection", width))
    words = b.unary("unit_length", b.linear(b.input("hidden", text.hidden_size), "text_projection", width))
    scale = b.parameter("", "logit_scale", ())
    return b.build(logits=b.op("similarities", "", [words, image], [1], [scale])[0])


def siglip_vision_tower(c: Config) -> tuple[Block, ...]:
    """Patches with a bias and positions, layers, norm, and the pooling head where the tower has one."""
    b = BlockBuilder("vision_model", part="vision")
    width, patch, channels, heads = c.hidden_size, c.size("patch_size"), c.size("num_channels"), c.num_attention_heads
    module = "embeddings.patch_embedding"
    weights = [b.parameter(module, "weight", (width, channels, patch, patch)), b.parameter(module, "bias", (width,))]
    table = b.parameter("embeddings.position_embedding", "weight", ((c.size("image_size") // patch) ** 2, width))
    settings: dict[str, Any] = {"image_size": c.size("image_size"), "num_channels": channels}
    x = b.op("pixel_patches", module, [], [width], weights, **settings)[0]
    x = b.add(x, b.op("buffered_positions", "embeddings.position_embedding", [], [width], [table])[0])
    end = BlockBuilder("vision_model", part="vision")
    y = end.layer_norm(end.input("image", width), "post_layernorm", part="vision")
    if c.flag("vision_use_head", True):
        y = end.unary("attention_pooling", y, "head.attention", pooling_weights(end, width), num_heads=heads)
        h = mlp(end, end.layer_norm(y, "head.layernorm", part="vision"), c, "head.mlp")
        y = end.unary("first_token", end.add(y, h))
    layers = (layer(c, "vision_model", i, "vision") for i in range(c.num_hidden_layers))
    return (b.build(image=x), *layers, end.build(image=y))


def shifted_comparison(text: Config, vision: Config) -> Block:
    """Both towers to unit length, their similarities times a learned scale plus a learned shift."""
    b = BlockBuilder("", part="projector")
    image = b.input("image", vision.hidden_size)
    words = b.input("hidden", text.size("projection_size", default=text.hidden_size))
    learned = [b.parameter("", name, (1,)) for name in ("logit_scale", "logit_bias")]
    if not vision.flag("vision_use_head", True):
        return b.build(image=b.unary("hold", image, "", learned))
    image, words = b.unary("over_norm", image), b.unary("over_norm", words)
    return b.build(logits=b.op("shifted_similarities", "", [words, image], [1], learned)[0])


def blocks(c: Config) -> tuple[Block, ...]:
    """Text tower, image tower, comparison."""
    clip = c.model_type == "clip"
    text = (c.table("text_config") or Config({}, c.model_id)).filled(TEXT_DEFAULTS[c.model_type])
    text = text.filled({"looks_back": clip})
    vision = c.table("vision_config") or Config({}, c.model_id)
    if not clip:
        vision = vision.filled(SIGLIP_VISION_DEFAULTS)
        return (*text_tower(text, clip), *siglip_vision_tower(vision), shifted_comparison(text, vision))
    vision = vision.filled(VISION_DEFAULTS)
    return (*text_tower(text, clip), *clip_vision_tower(vision), comparison(c, text, vision))
