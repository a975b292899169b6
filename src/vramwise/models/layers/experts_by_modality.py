"""Experts for text and narrower ones for images in one layer: tokens go to those of their own kind (ERNIE 4.5 VL)."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.layers.mixture import Mixture, feed_forward, shared_experts
from vramwise.models.layers.routed_experts import Experts
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.operations.experts_by_modality import RowsOfImages, RowsOfText, RowsTogether
from vramwise.models.operations.routers import Router

MARKS = 2
"""Tokens around an image, which go to the experts for images as its own do."""


def isolated(b: BlockBuilder, x: Value, *, m: Mixture, images: Experts) -> Value:
    """The shared experts, the text's on its tokens and those for images on theirs."""
    shared = shared_experts(b, x, m) if m.shared else None
    own = b.unary(RowsOfText(marks=MARKS), x, "mlp")
    h = feed_forward(b, own, m=replace(m, shared=0))
    others = b.unary(RowsOfImages(marks=MARKS), x, "mlp")
    h = b.op(RowsTogether(), "mlp", [x, h, for_images(b, others, images)], [x.width])[0]
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
    routed = b.op(
        Router(style="of_images", routing=e.routing, experts_per_token=chosen),
        f"{module}.gate",
        [x],
        [chosen] * 2,
        gate,
    )
    return b.op(
        ExpertMlps(
            num_experts=count,
            experts_per_token=0,
            chosen=chosen,
            style="of_images",
            function=e.function,
            gating=e.gating,
            transposed=False,
            fused_branches=e.fused_branches,
        ),
        f"{module}.experts",
        [x, *routed],
        [x.width],
        stacks,
    )[0]
