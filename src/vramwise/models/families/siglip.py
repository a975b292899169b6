"""SigLIP's vision tower, and Gemma 3's projector from it to the language model."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Parameter, Value
from vramwise.models.config import Config

# Defaults of SiglipVisionConfig (transformers 5.23).
_DEFAULTS: dict[str, Any] = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_channels": 3, "image_size": 224, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh",
}  # fmt: skip


def _builder(name: str) -> BlockBuilder:
    return BlockBuilder(name, part="vision", modality="image")


def embedding(c: Config, name: str) -> Block:
    """Patches, one convolution each, plus learned positions."""
    b = _builder(f"{name}.embeddings")
    width, patch = c.hidden_size, c.size("patch_size")
    shape = (width, c.size("num_channels"), patch, patch)
    weights = [b.parameter("patch_embedding", "weight", shape), b.parameter("patch_embedding", "bias", (width,))]
    patches = b.op("patch_embedding", "patch_embedding", [], [width], weights)[0]
    rows = (c.size("image_size") // patch) ** 2
    positions = b.embedding("position_embedding", rows, width, ids="patch_ids", part="vision", shard="replicated")
    return b.build(image=b.add(patches, positions))


def mlp(b: BlockBuilder, x: Value, c: Config, module: str) -> Value:
    """fc2(act(fc1(x)))."""
    h = b.activation(b.linear(x, f"{module}.fc1", c.intermediate_size, bias=True), c.text("hidden_act"))
    return b.linear(h, f"{module}.fc2", x.width, bias=True, shard="row")


def layer(c: Config, name: str, index: int) -> Block:
    """A pre-norm encoder layer with full attention."""
    b = _builder(f"{name}.encoder.layers.{index}")
    heads, width = c.num_attention_heads, c.hidden_size
    if width % heads:
        raise c.error(f"num_attention_heads ({heads}) of the vision tower does not divide its hidden_size ({width})")
    x = b.input("image", width)
    h = b.layer_norm(x, "layer_norm1", part="vision")
    q, k, v = (
        b.heads_first(b.heads(b.linear(h, f"self_attn.{piece}_proj", width, bias=True), heads)) for piece in "qkv"
    )
    dropout = c.number("attention_dropout")
    mixed = b.attention(q, k, v, num_heads=heads, num_key_value_heads=heads, causal=False, dropout=dropout, cache=None)
    x = b.add(x, b.linear(mixed, "self_attn.out_proj", width, bias=True, shard="row"))
    return b.build(image=b.add(x, mlp(b, b.layer_norm(x, "layer_norm2", part="vision"), c, "mlp")))


def pooling_weights(b: BlockBuilder, width: int) -> list[Parameter]:
    """The probe that asks the patches, and the projections of `nn.MultiheadAttention`."""
    attention = "head.attention"
    return [
        b.parameter("head", "probe", (1, 1, width)),
        b.parameter(attention, "in_proj_weight", (3 * width, width), shard="column"),
        b.parameter(attention, "in_proj_bias", (3 * width,), shard="column"),
        b.parameter(attention, "out_proj.weight", (width, width), shard="row", is_linear=True),
        b.parameter(attention, "out_proj.bias", (width,)),
    ]


def closing(c: Config, name: str) -> Block:
    """The norm after the layers, and the attention pooling head where the tower has one."""
    b = _builder(name)
    width = c.hidden_size
    x = b.layer_norm(b.input("image", width), "post_layernorm", part="vision")
    if c.flag("vision_use_head", True):
        pooled = b.unary("attention_pooling", x, "head.attention", pooling_weights(b, width))
        mlp(b, b.layer_norm(pooled, "head.layernorm", part="vision"), c, "head.mlp")
    return b.build(image=x)


def vision_tower(c: Config, name: str) -> tuple[Block, ...]:
    """Embedding, encoder layers, closing norm; they run only for batches with images."""
    c = c.filled(_DEFAULTS)
    return (embedding(c, name), *(layer(c, name, i) for i in range(c.num_hidden_layers)), closing(c, name))


def projector(c: Config, name: str, width: int) -> Block:
    """Gemma 3's projector: patches averaged to the tokens of an image, a norm, one matrix."""
    b = BlockBuilder(name, part="projector", modality="image")
    x = b.input("image", c.filled(_DEFAULTS).hidden_size)
    x = b.rms_norm(b.unary("average_pool", x), "mm_soft_emb_norm", style="gemma", part="projector")
    weight = b.parameter("", "mm_input_projection_weight", (x.width, width))
    return b.build(image=b.unary("project", x, "", [weight], width))
