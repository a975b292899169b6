"""SigLIP's MLP and pooling weights, and Gemma 3's projector from its tower to the language model."""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Parameter, Value
from vramwise.models.config import Config


def mlp(b: BlockBuilder, x: Value, c: Config, module: str) -> Value:
    """fc2(act(fc1(x)))."""
    h = b.activation(b.linear(x, f"{module}.fc1", c.intermediate_size, bias=True), c.text("hidden_act"))
    return b.linear(h, f"{module}.fc2", x.width, bias=True, shard="row")


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
