"""CLIP and SigLIP as models of their own: a tower for text, one for images, and what compares them.

The text tower runs as the model's text part; the image tower's parameters are counted apart (part `vision`).
"""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Modality, Part
from vramwise.models.config import Config
from vramwise.models.families.siglip import vision_tower

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


def not_counted(c: Config) -> str:
    """What an estimate says that it leaves out."""
    return "activations of images"


def task(c: Config) -> str:
    """Neither predicts tokens."""
    return "none"


def layer(c: Config, name: str, index: int, modality: Modality, part: Part | None = None) -> Block:
    """A pre-norm layer of either tower; CLIP's text looks back only."""
    b = BlockBuilder(f"{name}.encoder.layers.{index}", layer=index, part=part or "attention", modality=modality)
    heads, stream = c.num_attention_heads, "hidden" if modality == "text" else "image"
    x = b.input(stream, c.hidden_size)
    if x.width % heads:
        raise c.error(f"num_attention_heads ({heads}) does not divide hidden_size ({x.width})")
    h = b.layer_norm(x, "layer_norm1", part=part or "norm")
    q, k, v = (
        b.heads_first(b.heads(b.linear(h, f"self_attn.{piece}_proj", x.width, bias=True), heads)) for piece in "qkv"
    )
    mixed = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=heads, dropout=c.number("attention_dropout"), cache=None,
        causal=modality == "text" and c.flag("looks_back"), style="clip",
    )  # fmt: skip
    x = b.add(x, b.linear(mixed, "self_attn.out_proj", x.width, bias=True, shard="row"))
    b.part = part or "mlp"
    h = b.linear(b.layer_norm(x, "layer_norm2", part=part or "norm"), "mlp.fc1", c.intermediate_size, bias=True)
    h = b.linear(b.activation(h, c.text("hidden_act")), "mlp.fc2", x.width, bias=True, shard="row")
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
    if not clip:
        projected = end.linear(
            end.unary("first_token", y), "head", c.size("projection_size", default=x.width), bias=True
        )
        y = end.unary("hold", projected)
    layers = (layer(c, "text_model", i, "text") for i in range(c.num_hidden_layers))
    return (b.build(hidden=x), *layers, end.build(hidden=y))


def clip_vision_tower(c: Config) -> tuple[Block, ...]:
    """Patches without bias, a class token, norms before and after the layers."""
    b = BlockBuilder("vision_model", part="vision", modality="image")
    width, patch = c.hidden_size, c.size("patch_size")
    tokens = (c.size("image_size") // patch) ** 2 + 1
    weights = [
        b.parameter("embeddings", "class_embedding", (width,)),
        b.parameter("embeddings.patch_embedding", "weight", (width, c.size("num_channels"), patch, patch)),
        b.parameter("embeddings.position_embedding", "weight", (tokens, width)),
    ]
    x = b.op("patch_embedding", "embeddings", [], [width], weights)[0]
    x = b.layer_norm(x, "pre_layrnorm", part="vision")
    end = BlockBuilder("vision_model", part="vision", modality="image")
    y = end.layer_norm(end.input("image", width), "post_layernorm", part="vision")
    layers = (layer(c, "vision_model", i, "image", "vision") for i in range(c.num_hidden_layers))
    return (b.build(image=x), *layers, end.build(image=y))


def comparison(c: Config, text: Config, vision: Config, clip: bool) -> Block:
    """The scale (and SigLIP's shift) of the similarities, CLIP's projections of both towers to one width."""
    b = BlockBuilder("", part="projector", modality="image")
    x = b.input("image", vision.hidden_size)
    shape = () if clip else (1,)
    names = ("logit_scale",) if clip else ("logit_scale", "logit_bias")
    x = b.unary("hold", x, "", [b.parameter("", name, shape) for name in names])
    if not clip:
        return b.build(image=x)
    width = c.size("projection_dim", default=512)
    x = b.linear(x, "visual_projection", width)
    aside = b.parameter("text_projection", "weight", (width, text.hidden_size), is_linear=True, shard="column")
    return b.build(image=b.unary("hold", x, "text_projection", [aside]))


def blocks(c: Config) -> tuple[Block, ...]:
    """Text tower, image tower, comparison."""
    clip = c.model_type == "clip"
    text = (c.table("text_config") or Config({}, c.model_id)).filled(TEXT_DEFAULTS[c.model_type])
    text = text.filled({"looks_back": clip})
    vision = c.table("vision_config") or Config({}, c.model_id)
    tower = clip_vision_tower(vision.filled(VISION_DEFAULTS)) if clip else vision_tower(vision, "vision_model")
    vision = vision.filled(VISION_DEFAULTS)
    return (*text_tower(text, clip), *tower, comparison(c, text, vision, clip))
