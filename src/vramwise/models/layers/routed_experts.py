"""Pieces of mixture-of-experts layers: router, routed experts."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.operations.routers import LoadBalancingLoss, Router
from vramwise.records import record


@record
class Experts:
    """The routed experts of one layer; `routing` and `gating` name the ways of the implementation.

    `style` names the code of a class that does not use the library's grouped products. Without `gated`, an expert is
    two products with an activation between them.
    """

    num_experts: int
    experts_per_token: int
    intermediate_size: int
    function: str
    routing: str
    normalized: bool = True
    bias: bool = False
    gating: str = "halves"
    transposed: bool = False
    router: str = "mlp.gate"
    module: str = "mlp.experts"
    fused_branches: int = 2
    style: str = ""
    gated: bool = True


def checked(c: Config, e: Experts, chosen: str = "num_experts_per_tok") -> Experts:
    """Refuses more experts a token than there are."""
    if e.experts_per_token > e.num_experts:
        raise c.error(f"{chosen} ({e.experts_per_token}) is more than the number of experts ({e.num_experts})")
    return e


def routed_experts(
    b: BlockBuilder, x: Value, e: Experts, *, correction: tuple[str, str, tuple[int, ...]] | None = None,
    **routing: object,
) -> Value:  # fmt: skip
    """Σ over a token's experts of weight · down(act(gate(x)) · up(x)); experts are fused 3-D parameters."""
    weights, indices = routed(b, x, e, correction=correction, **routing)
    return expert_mlps(b, x, weights, indices, e)


def routed(
    b: BlockBuilder, x: Value, e: Experts, *, correction: tuple[str, str, tuple[int, ...]] | None = None, **routing: Any
) -> tuple[Value, ...]:  # fmt: skip
    """The weights and the numbers of each token's experts."""
    width, num_experts = x.width, e.num_experts
    router = [b.parameter(e.router, "weight", (num_experts, width), part="router")]
    if e.bias:
        router.append(b.parameter(e.router, "bias", (num_experts,), part="router"))
    if correction is not None:
        router.append(b.parameter(*correction, part="router"))
    chosen = e.experts_per_token
    return b.op(
        Router(style=e.routing, num_experts=num_experts, experts_per_token=chosen, normalized=e.normalized, **routing),
        e.router,
        [x],
        [chosen, chosen],
        router,
    )


def expert_mlps(b: BlockBuilder, x: Value, weights: Value, indices: Value, e: Experts) -> Value:
    """The experts themselves."""
    width, inner, num_experts = x.width, e.intermediate_size, e.num_experts
    up_shape, down_shape = (num_experts, 2 * inner, width), (num_experts, width, inner)
    if e.transposed:
        up_shape, down_shape = (num_experts, width, 2 * inner), (num_experts, inner, width)
    up_name = "gate_up_proj" if e.gated else "up_proj"
    if not e.gated:
        up_shape = (num_experts, inner, width)
    parameters = [
        b.parameter(e.module, up_name, up_shape, part="experts", shard="expert_column"),
        b.parameter(e.module, "down_proj", down_shape, part="experts", shard="expert_row"),
    ]
    if e.bias:
        parameters += [
            b.parameter(e.module, "gate_up_proj_bias", (num_experts, 2 * inner), part="experts", shard="expert_column"),
            b.parameter(e.module, "down_proj_bias", (num_experts, width), part="experts", shard="expert_row"),
        ]
    return b.op(
        ExpertMlps(
            num_experts=num_experts,
            experts_per_token=e.experts_per_token,
            function=e.function,
            gating=e.gating,
            transposed=e.transposed,
            fused_branches=e.fused_branches,
            style=e.style,
        ),
        e.module,
        [x, weights, indices],
        [width],
        parameters,
    )[0]


def balancing_loss(c: Config, e: Experts, num_layers: int) -> tuple[Block, ...]:
    """The auxiliary loss over the router logits of `num_layers` layers, where the config asks for it."""
    if not c.flag("output_router_logits") or not num_layers:
        return ()
    b = BlockBuilder("load_balancing_loss")
    b.unary(
        LoadBalancingLoss(
            num_layers=num_layers,
            num_experts=e.num_experts,
            experts_per_token=e.experts_per_token,
            fp32_logits=e.routing in ("fp32_sigmoid", "fp32_softmax"),
        ),
        b.input("hidden", c.hidden_size),
        width=1,
    )
    return (b.build(),)
