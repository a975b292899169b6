"""ERNIE 4.5 VL: experts for text and narrower ones for images in every sparse layer; text meets the former only."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.families.nested import inside, renamed
from vramwise.models.layers import decoder
from vramwise.models.layers.design import Design, LayerKind
from vramwise.models.layers.mixture import Mixture, experts, feed_forward, shared_experts, sparse_layers
from vramwise.models.layers.routed_experts import Experts, balancing_loss
from vramwise.models.towers.projector_pieces import joined, norm, two_products
from vramwise.models.towers.tower_design import Tower, layer_norm
from vramwise.models.towers.vision_tower import image_tokens, tower_blocks

# Defaults of Ernie4_5_VLMoeTextConfig and Ernie4_5_VLMoeVisionConfig (transformers 5.23).
_TEXT: dict[str, Any] = {
    "vocab_size": 103_424, "hidden_size": 2560, "intermediate_size": 12_288, "num_hidden_layers": 28,
    "num_attention_heads": 20, "num_key_value_heads": 4, "moe_k": 6, "moe_num_experts": 64,
    "moe_num_shared_experts": 2, "moe_intermediate_size": [1536, 512],
}  # fmt: skip
_VISION: dict[str, Any] = {
    "depth": 32, "hidden_size": 1280, "intermediate_size": 5120, "num_heads": 16, "in_channels": 3, "patch_size": 14,
    "spatial_merge_size": 2, "temporal_merge_size": 2, "hidden_act": "quick_gelu",
}  # fmt: skip


MARKS = 2
"""Tokens around an image, which go to the experts for images as its own do."""


def isolated(b: BlockBuilder, x: Value, *, m: Mixture, images: Experts) -> Value:
    """The shared experts, the text's on its tokens and those for images on theirs."""
    shared = shared_experts(b, x, m) if m.shared else None
    own = b.unary("rows_of_text", x, "mlp", marks=MARKS)
    h = feed_forward(b, own, m=replace(m, shared=0))
    others = b.unary("rows_of_images", x, "mlp", marks=MARKS)
    h = b.op("rows_together", "mlp", [x, h, for_images(b, others, images)], [x.width])[0]
    return b.add(h, shared) if shared is not None else h


def for_images(b: BlockBuilder, x: Value, e: Experts) -> Value:
    """Router and experts for images; text passes none of them."""
    count, inner, module, chosen = e.num_experts, e.intermediate_size, "mlp.vision_moe", e.experts_per_token
    gate = [
        b.parameter(f"{module}.gate", "weight", (count, x.width), part="router"),
        b.parameter(f"{module}.gate.moe_statics", "e_score_correction_bias", (1, count), part="router"),
    ]
    stacks = [
        b.parameter(f"{module}.experts", "gate_up_proj", (count, 2 * inner, x.width), part="experts",
                    shard="expert_column"),
        b.parameter(f"{module}.experts", "down_proj", (count, x.width, inner), part="experts", shard="expert_row"),
    ]  # fmt: skip
    routed = b.op("router", f"{module}.gate", [x], [chosen] * 2, gate, style="of_images", routing=e.routing,
                  experts_per_token=chosen)  # fmt: skip
    return b.op(
        "experts", f"{module}.experts", [x, *routed], [x.width], stacks, num_experts=count, experts_per_token=0,
        chosen=chosen, style="of_images", function=e.function, gating=e.gating, transposed=False,
        fused_branches=e.fused_branches,
    )[0]  # fmt: skip


def text_blocks(c: Config, *, tied: bool) -> tuple[Block, ...]:
    widths = c.items("moe_intermediate_size") or []
    if len(widths) != 2:
        raise c.error("moe_intermediate_size: expected two widths, of the experts for text and for images")
    own, images = (
        experts(
            Config({**c.values, "moe_intermediate_size": width, "attention_dropout": 0.0}, c.model_id), None,
            keys=("moe_num_experts", "num_experts"), chosen="moe_k", routing="ernie4_5_moe",
            router="mlp.text_moe.gate", module="mlp.text_moe.experts",
        )
        for width in widths
    )  # fmt: skip
    bias = c.flag("use_bias")
    statics = ("mlp.text_moe.gate.moe_statics", "e_score_correction_bias", (1, own.num_experts))
    shared = c.size("moe_num_shared_experts", least=0) * own.intermediate_size
    m = Mixture(own, correction=statics, shared=shared, bias=bias)
    s = Design(
        qkv_bias=bias, output_bias=bias, mlp_bias=bias, rotary="pairs_widened", rotary_table="rows fp32",
    )  # fmt: skip
    flags = sparse_layers(c, 1)
    kinds = [LayerKind(mlp=partial(isolated, m=m, images=images)) if flag else LayerKind() for flag in flags]
    values = {**c.values, "tie_word_embeddings": tied, "attention_dropout": 0.0}
    *body, head = decoder.model(Config(values, c.model_id), s, kinds)
    return (*body, *balancing_loss(c, own, sum(flags)), head)


def resampler(c: Config, tower: Config, width: int) -> Block:
    """Squares of patches and pairs of frames joined, each behind two products and a norm."""
    b = BlockBuilder("model.resampler_model", part="projector", modality="image")
    x = joined(b, b.input("image", tower.hidden_size), tower.size("spatial_merge_size") ** 2)
    wide = x.width
    for name, tokens in (("spatial_linear", 1), ("temporal_linear", tower.size("temporal_merge_size"))):
        x = b.unary("frames_twice", x, width=x.width * tokens) if tokens > 1 else x
        x = two_products(b, x, (f"{name}.fc1", f"{name}.fc2"), (wide, wide))
        x = norm(b, x, f"{name}.ln")
    x = b.linear(x, "mlp", width, bias=True)
    return b.build(image=b.rms_norm(x, "after_norm", part="projector"))


def blocks(c: Config) -> tuple[Block, ...]:
    """Tower, resampler, language model."""
    text = (c.table("text_config") or Config({}, c.model_id)).filled(_TEXT)
    vision = (c.table("vision_config") or Config({}, c.model_id)).filled(_VISION)
    width, patch = vision.hidden_size, vision.size("patch_size")
    tower = Tower(
        width, vision.intermediate_size, vision.size("depth"), vision.size("num_heads"), vision.text("hidden_act"),
        before=(("patch_embed.proj.weight", (width, vision.size("in_channels") * patch * patch)),),
        embedding="rows_of_pixels", packed=True, after=layer_norm("ln", width), closing="layer_norm", layers="blocks",
        norms=("norm1", "norm2"), qkv=("attn.qkv",), output="attn.proj",
    )  # fmt: skip
    tied = c.flag("tie_word_embeddings", True)
    rename = inside("model.language_model")
    embedding, *language = (renamed(block, rename) for block in text_blocks(text, tied=tied))
    towers = (*tower_blocks(vision, tower, "model.vision_tower"), resampler(c, vision, text.hidden_size))
    return (*towers, embedding, image_tokens(text.hidden_size), *language)
