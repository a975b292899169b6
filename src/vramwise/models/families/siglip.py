"""Layers of SigLIP's vision tower, its pooling weights, and Gemma 3's projector from it to the language model."""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Parameter, Value
from vramwise.models.config import Config


def _builder(name: str) -> BlockBuilder:
    return BlockBuilder(name, part="vision", modality="image")


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


def projector(c: Config, name: str, width: int, tokens: int) -> Block:
    """Gemma 3's projector: patches averaged to the `tokens` of an image, a norm, one matrix."""
    b = BlockBuilder(name, part="projector", modality="image")
    x = b.input("image", c.hidden_size)
    rows = c.size("image_size") // c.size("patch_size")
    x = b.unary("average_pool", x, rows=rows, kernel=rows // int(tokens**0.5))
    x = b.rms_norm(x, "mm_soft_emb_norm", style="gemma", part="projector")
    weight = b.parameter("", "mm_input_projection_weight", (x.width, width))
    return b.build(image=b.unary("project", x, "", [weight], width))
