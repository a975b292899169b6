"""DINO 2 and 3: ViT whose layers scale what they add; every parameter is of part `vision`.

Version 2 has learned positions, and with registers some learned tokens behind the class token; version 3 turns queries
and keys by the places of patches instead. With `architectures` naming DINO 2's classifier it follows, over the class
token and the mean of all patches; else the bare model. Training with registers or rotary places is not described.
"""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.attention import PLAIN, Attention
from vramwise.models.operations.images import ClassAndMean, ClassTokenFirst, PixelPatches
from vramwise.models.operations.simple import AddBias, Hold
from vramwise.models.operations.towers import LayerScale
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.tower_design import num_patches, pair

_SECOND: dict[str, object] = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "mlp_ratio": 4, "image_size": 224,
    "patch_size": 14, "num_channels": 3, "hidden_act": "gelu",
}  # fmt: skip
CLASS_DEFAULTS: dict[str, dict[str, object]] = {
    "dinov2": _SECOND,
    "dinov2_with_registers": {**_SECOND, "patch_size": 16, "num_register_tokens": 4},
    "dinov3_vit": {
        **_SECOND, "hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 6, "patch_size": 16,
        "num_register_tokens": 0,
    },
}  # fmt: skip
"""Defaults of the configuration classes (transformers 5.23)."""
_ROOTS = {"dinov2": "dinov2.", "dinov2_with_registers": "dinov2_with_registers."}


def classifies(c: Config) -> bool:
    """Whether the config names the classifier, which version 3 has not."""
    named = [str(name) for name in c.items("architectures") or []]
    return c.model_type in _ROOTS and any(name.endswith("ForImageClassification") for name in named)


def task(c: Config) -> str:
    """It predicts no tokens."""
    return "image-classification" if classifies(c) else "none"


def embedding(c: Config, root: str) -> Block:
    """Patches, one convolution each, a class token, registers, learned positions; the mask's token is not read."""
    b = BlockBuilder(f"{root}embeddings", part="vision")
    width, third = c.hidden_size, c.model_type == "dinov3_vit"
    module = "patch_embeddings" if third else "patch_embeddings.projection"
    weights = [
        b.parameter(module, "weight", (width, c.size("num_channels"), *pair(c, "patch_size"))),
        b.parameter(module, "bias", (width,)),
    ]  # fmt: skip
    token = b.parameter("", "cls_token", (1, 1, width))
    sizes: dict[str, Any] = {"image_size": pair(c, "image_size")[0], "num_channels": c.size("num_channels")}
    x = b.op(PixelPatches(**sizes), module, [], [width], weights)[0]
    x = b.unary(ClassTokenFirst(), x, "", [token])
    if c.model_type != "dinov2" or c.flag("use_mask_token", True):
        mask = b.parameter("", "mask_token", (1, 1, width) if third else (1, width))
        x = b.unary(Hold(), x, "", [mask])
    if not third:
        positions = b.parameter("", "position_embeddings", (1, num_patches(c) + 1, width))
        x = b.unary(AddBias(), x, "", [positions])
    if c.model_type != "dinov2":
        x = registers(b, x, c)
    return b.build(image=b.dropout(x, c.number("hidden_dropout_prob")))


def registers(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Learned tokens behind the class token; there may be none of them."""
    count = c.size("num_register_tokens", least=0)
    weights = [b.parameter("", "register_tokens", (1, count, x.width))] if count else []
    return b.unary(Undescribed(name="registers"), x, "", weights)


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Full attention; each of version 3's products says whether it has a bias."""
    heads = c.heads_of(x.width)
    both = c.flag("qkv_bias", True)
    biases = [both] * 3 + [True]
    if c.model_type == "dinov3_vit":
        biases = [c.flag(f"{name}_bias", name != "key") for name in ("query", "key", "value", "proj")]
    q, k, v = (
        b.heads_first(b.heads(b.linear(x, f"attention.{name}_proj", x.width, bias=bias), heads))
        for name, bias in zip("qkv", biases[:3], strict=True)
    )
    dropout = c.number("attention_dropout" if c.model_type == "dinov3_vit" else "attention_probs_dropout_prob")
    core = Attention(num_heads=heads, num_key_value_heads=heads, causal=False, style=PLAIN, dropout=dropout)
    mixed = b.attention(core, q, k, v, module="attention", cache=None)
    return b.linear(mixed, "attention.o_proj", x.width, bias=biases[3], shard="row")


def gated(b: BlockBuilder, x: Value, inner: int, function: str, bias: bool) -> Value:
    """down(act(gate(x)) · up(x))."""
    gate = b.activation(b.linear(x, "mlp.gate_proj", inner, bias=bias), function)
    h = b.multiply(gate, b.linear(x, "mlp.up_proj", inner, bias=bias))
    return b.linear(h, "mlp.down_proj", x.width, bias=bias, shard="row")


def mlp(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Two products or a gated MLP; version 2's gated one keeps two thirds of the width."""
    if c.model_type == "dinov3_vit":
        inner, bias, names = c.intermediate_size, c.flag("mlp_bias", True), ("mlp.up_proj", "mlp.down_proj")
        if c.flag("use_gated_mlp"):
            return gated(b, x, inner, c.text("hidden_act"), bias)
    else:
        inner, bias, names = int(x.width * c.number("mlp_ratio")), True, ("mlp.fc1", "mlp.fc2")
        if c.flag("use_swiglu_ffn"):
            return gated(b, x, (int(inner * 2 / 3) + 7) // 8 * 8, "silu", bias)
    h = b.activation(b.linear(x, names[0], inner, bias=bias), c.text("hidden_act"))
    return b.linear(h, names[1], x.width, bias=bias, shard="row")


def layer(c: Config, name: str, index: int) -> Block:
    """A pre-norm layer; both halves are scaled before they are added."""
    b = BlockBuilder(f"{name}.{index}", layer=index, part="vision")
    x = b.input("image", c.hidden_size)
    for number, half in ((1, attention), (2, mlp)):
        h = half(b, b.layer_norm(x, f"norm{number}", part="vision"), c)
        scale = b.parameter(f"layer_scale{number}", "lambda1", (x.width,))
        x = b.add(b.unary(LayerScale(), h, f"layer_scale{number}", [scale]), x)
    return b.build(image=x)


def closing(c: Config, root: str) -> Block:
    """The norm, and the classifier where there is one."""
    b = BlockBuilder("", part="vision")
    norm = "norm" if c.model_type == "dinov3_vit" else f"{root}layernorm"
    x = b.layer_norm(b.input("image", c.hidden_size), norm, part="vision")
    if not root:
        return b.build(image=x)
    labels = c.num_labels
    both = b.unary(ClassAndMean(), x, width=2 * x.width)
    return b.build(logits=b.linear(both, "classifier", labels, bias=True))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, norm and classifier."""
    c = config.filled(CLASS_DEFAULTS[config.model_type])
    if c.number("drop_path_rate"):
        raise c.error("drop_path_rate: leaving out halves of layers at random is not described")
    root = _ROOTS[c.model_type] if classifies(c) else ""
    name = "model.layer" if c.model_type == "dinov3_vit" else f"{root}encoder.layer"
    return (embedding(c, root), *(layer(c, name, i) for i in range(c.num_hidden_layers)), closing(c, root))
