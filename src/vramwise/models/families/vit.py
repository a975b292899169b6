"""ViT: patches of an image and a class token through pre-norm layers; every parameter is of part `vision`.

With `architectures` naming `ViTForImageClassification` a classifier of `num_labels` follows, whose loss is cross
entropy over one label to an image; else the bare model's pooler. An image to a row of the batch, and no tokens of text.
"""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.multi_head_attention import multi_head_attention
from vramwise.models.operations.images import ClassTokenFirst, PixelPatches
from vramwise.models.operations.simple import AddBias, FirstToken

CLASS_DEFAULTS = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "image_size": 224, "patch_size": 16, "num_channels": 3, "hidden_act": "gelu",
}  # fmt: skip
"""Defaults of `ViTConfig`."""


def classifies(c: Config) -> bool:
    """Whether the config names the classifier."""
    return "ViTForImageClassification" in map(str, c.items("architectures") or [])


def task(c: Config) -> str:
    """It predicts no tokens."""
    return "image-classification" if classifies(c) else "none"


def embedding(c: Config, root: str) -> Block:
    """Patches, one convolution each, a class token and learned positions."""
    b = BlockBuilder(f"{root}embeddings", part="vision")
    width, patch, channels = c.hidden_size, c.size("patch_size"), c.size("num_channels")
    tokens = (c.size("image_size") // patch) ** 2 + 1
    module = "patch_embeddings.projection"
    token = b.parameter("", "cls_token", (1, 1, width))
    positions = b.parameter("", "position_embeddings", (1, tokens, width))
    weights = [b.parameter(module, "weight", (width, channels, patch, patch)), b.parameter(module, "bias", (width,))]
    settings: dict[str, Any] = {"image_size": c.size("image_size"), "num_channels": channels}
    x = b.op(PixelPatches(**settings), module, [], [width], weights)[0]
    x = b.unary(AddBias(), b.unary(ClassTokenFirst(), x, "", [token]), "", [positions])
    return b.build(image=b.dropout(x, c.number("hidden_dropout_prob")))


def layer(c: Config, root: str, index: int) -> Block:
    """A pre-norm layer with full attention."""
    b = BlockBuilder(f"{root}layers.{index}", layer=index, part="vision")
    dropout = c.number("hidden_dropout_prob")
    x = b.input("image", c.hidden_size)
    names = ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj")
    h = multi_head_attention(
        b, b.layer_norm(x, "layernorm_before", part="vision"), c, names,
        bias=c.flag("qkv_bias", True), causal=False, cache=None, dropout=c.number("attention_probs_dropout_prob"),
    )  # fmt: skip
    x = b.add(x, b.dropout(h, dropout))
    h = b.linear(b.layer_norm(x, "layernorm_after", part="vision"), "mlp.fc1", c.intermediate_size, bias=True)
    h = b.linear(b.activation(h, c.text("hidden_act")), "mlp.fc2", x.width, bias=True, shard="row")
    return b.build(image=b.add(x, b.dropout(h, dropout)))


def closing(c: Config, root: str) -> Block:
    """The norm, then the classifier or the pooler."""
    b = BlockBuilder("", part="vision")
    x = b.layer_norm(b.input("image", c.hidden_size), f"{root}layernorm", part="vision")
    first = b.unary(FirstToken(), x)
    if not root:
        width = c.size("pooler_output_size", default=c.hidden_size)
        y = b.activation(b.linear(first, "pooler.dense", width, bias=True), c.text("pooler_act", "tanh"))
        return b.build(image=y)
    labels = c.num_labels
    return b.build(logits=b.linear(first, "classifier", labels, bias=True))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, classifier or pooler."""
    c = config.filled(CLASS_DEFAULTS)
    root = "vit." if classifies(c) else ""
    return (embedding(c, root), *(layer(c, root, i) for i in range(c.num_hidden_layers)), closing(c, root))
