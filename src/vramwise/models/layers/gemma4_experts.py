"""Routed experts of Gemma 4, beside whose result that of a dense MLP stays."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.gemma_attention import norm
from vramwise.models.layers.routed_experts import Experts, checked, expert_mlps
from vramwise.models.operations.routers import Router


def with_experts(b: BlockBuilder, dense: Value, x: Value, c: Config, function: str) -> Value:
    """The dense MLP's result plus that of routed experts, which read the stream themselves."""
    e = checked(c, Experts(
        num_experts=c.size("num_experts"), experts_per_token=c.size("top_k_experts"), module="experts",
        intermediate_size=c.size("moe_intermediate_size"), function=function, routing="gemma4",
    ), "top_k_experts")  # fmt: skip
    router = [
        b.parameter("router.proj", "weight", (e.num_experts, x.width), part="router", is_linear=True),
        b.parameter("router", "scale", (x.width,), part="router"),
        b.parameter("router", "per_expert_scale", (e.num_experts,), part="router"),
    ]
    dense, chosen = norm(b, dense, "post_feedforward_layernorm_1"), e.experts_per_token
    weights, indices = b.op(
        Router(style=e.routing, normalized=True, num_experts=e.num_experts, experts_per_token=chosen),
        "router",
        [x],
        [chosen, chosen],
        router,
    )
    routed = expert_mlps(b, norm(b, x, "pre_feedforward_layernorm_2"), weights, indices, e)
    return b.add(dense, norm(b, routed, "post_feedforward_layernorm_2"))
