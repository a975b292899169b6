"""Inkling's experts, of which the shared ones are weighed by the router too."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.mixture import experts
from vramwise.models.layers.routed_experts import expert_mlps
from vramwise.models.operations.inkling import WeighedExperts, WeighingRouter


def sparse_mlp(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Routed experts and shared ones, weighed together."""
    e = experts(c, None, keys=("n_routed_experts",), routing="")
    shared, chosen, inner = c.size("n_shared_experts"), e.experts_per_token, e.intermediate_size
    router = [
        b.parameter("mlp.gate", "weight", (e.num_experts + shared, x.width), part="router"),
        b.parameter("mlp.gate", "global_scale", (1,), part="router"),
    ]
    weights, indices, factors = b.op(
        WeighingRouter(num_experts=e.num_experts, experts_per_token=chosen, num_shared=shared),
        "mlp.gate",
        [x],
        [chosen, chosen, shared],
        router,
    )
    routed = expert_mlps(b, x, weights, indices, e)
    shapes = {"gate_proj": (inner, x.width), "up_proj": (inner, x.width), "down_proj": (x.width, inner)}
    matrices = [b.parameter("mlp.shared_experts", name, (shared, *s), part="mlp") for name, s in shapes.items()]
    own = WeighedExperts(count=shared, function=e.function)
    return b.add(routed, b.op(own, "mlp.shared_experts", [x, factors], [x.width], matrices)[0])
