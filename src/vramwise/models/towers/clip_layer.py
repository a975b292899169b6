"""A layer of the towers of CLIP and SigLIP, and the weights of SigLIP's attention pooling."""

from __future__ import annotations

from vramwise.models.blocks import Block, Modality, Parameter, Part, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.multi_head_attention import multi_head_attention


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


def layer(c: Config, name: str, index: int, part: Part | None = None, modality: Modality = "text") -> Block:
    """A pre-norm layer of either tower; CLIP's text looks back only. A tower beside a language model has no numbers."""
    number = index if modality == "text" else None
    b = BlockBuilder(f"{name}.encoder.layers.{index}", layer=number, part=part or "attention", modality=modality)
    stream = "image" if part else "hidden"
    x = b.input(stream, c.hidden_size)
    names = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj")
    h = multi_head_attention(
        b, b.layer_norm(x, "layer_norm1", part=part or "norm"), c, names, dropout=c.number("attention_dropout"),
        cache=None, causal=part is None and c.flag("looks_back"),
    )  # fmt: skip
    x = b.add(x, h)
    b.part = part or "mlp"
    h = mlp(b, b.layer_norm(x, "layer_norm2", part=part or "norm"), c, "mlp")
    return b.build(**{stream: b.add(x, h)})
