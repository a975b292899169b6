"""The towers of CLIP and SigLIP as models of their own: one for text, one for images, which a loss compares."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.images import BufferedPositions, ClassTokenFirst, PixelPatches, TokenOfEachRow
from vramwise.models.operations.siglip import AttentionPooling
from vramwise.models.operations.simple import Embedding, FirstToken, Hold
from vramwise.models.towers.clip_layer import layer, mlp, pooling_weights

TEXT_DEFAULTS: dict[str, dict[str, object]] = {
    "clip": {"vocab_size": 49408, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12,
             "num_attention_heads": 8, "max_position_embeddings": 77, "hidden_act": "quick_gelu"},
    "siglip": {"vocab_size": 32000, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
               "num_attention_heads": 12, "max_position_embeddings": 64, "hidden_act": "gelu_pytorch_tanh"},
}  # fmt: skip
TEXT_DEFAULTS["siglip2"] = TEXT_DEFAULTS["siglip"]
"""Defaults of `CLIPTextConfig`, `SiglipTextConfig` and `Siglip2TextConfig`."""
VISION_DEFAULTS: dict[str, object] = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_channels": 3, "image_size": 224, "patch_size": 32, "hidden_act": "quick_gelu",
}  # fmt: skip
"""Defaults of `CLIPVisionConfig`."""
SIGLIP_VISION_DEFAULTS = {**VISION_DEFAULTS, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh"}
"""Defaults of `SiglipVisionConfig`."""


def text_tower(c: Config, clip: bool) -> tuple[Block, ...]:
    """Tokens and positions, layers, final norm; SigLIP's ends in a projection of its last token."""
    b = BlockBuilder("text_model.embeddings", part="embedding")
    x, positions = b.embedding("token_embedding", c.vocab_size, c.hidden_size), c.size("max_position_embeddings")
    table = b.parameter("position_embedding", "weight", (positions, x.width))
    x = b.add(
        x, b.op(Embedding(ids="position_ids", buffer_rows=positions), "position_embedding", [], [x.width], [table])[0]
    )
    end = BlockBuilder("text_model", part="head")
    y = end.layer_norm(end.input("hidden", x.width), "final_layer_norm")
    if clip:
        y = end.unary(TokenOfEachRow(), y)
    else:
        width = c.size("projection_size", default=x.width)
        y = end.unary(Hold(), end.linear(end.unary(FirstToken(), y), "head", width, bias=True))
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
    x = b.op(PixelPatches(**settings), "embeddings.patch_embedding", [], [width], [weight])[0]
    x = b.unary(ClassTokenFirst(), x, "embeddings", [token])
    x = b.add(x, b.op(BufferedPositions(), "embeddings.position_embedding", [], [width], [table])[0])
    x = b.layer_norm(x, "pre_layrnorm", part="vision")
    end = BlockBuilder("vision_model", part="vision")
    y = end.layer_norm(end.unary(FirstToken(), end.input("image", width)), "post_layernorm", part="vision")
    layers = (layer(c, "vision_model", i, "vision") for i in range(c.num_hidden_layers))
    return (b.build(image=x), *layers, end.build(image=y))


def siglip_vision_tower(c: Config) -> tuple[Block, ...]:
    """Patches with a bias and positions, layers, norm, and the pooling head where the tower has one."""
    b = BlockBuilder("vision_model", part="vision")
    width, patch, channels, heads = c.hidden_size, c.size("patch_size"), c.size("num_channels"), c.num_attention_heads
    module = "embeddings.patch_embedding"
    weights = [b.parameter(module, "weight", (width, channels, patch, patch)), b.parameter(module, "bias", (width,))]
    table = b.parameter("embeddings.position_embedding", "weight", ((c.size("image_size") // patch) ** 2, width))
    settings: dict[str, Any] = {"image_size": c.size("image_size"), "num_channels": channels}
    x = b.op(PixelPatches(**settings), module, [], [width], weights)[0]
    x = b.add(x, b.op(BufferedPositions(), "embeddings.position_embedding", [], [width], [table])[0])
    end = BlockBuilder("vision_model", part="vision")
    y = end.layer_norm(end.input("image", width), "post_layernorm", part="vision")
    if c.flag("vision_use_head", True):
        y = end.unary(AttentionPooling(num_heads=heads), y, "head.attention", pooling_weights(end, width))
        h = mlp(end, end.layer_norm(y, "head.layernorm", part="vision"), c, "head.mlp")
        y = end.unary(FirstToken(), end.add(y, h))
    layers = (layer(c, "vision_model", i, "vision") for i in range(c.num_hidden_layers))
    return (b.build(image=x), *layers, end.build(image=y))
