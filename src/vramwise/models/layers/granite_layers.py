"""What Granite's mixtures share: experts that the best logits choose, an MLP beside them, windows and rotary bases."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.decoder_design import LayerKind
from vramwise.models.layers.mixture import Mixture, experts
from vramwise.models.layers.windows import typed_layers


def granite_mixture(c: Config, count: int | None, shared: int) -> Mixture:
    """Routed experts, and a shared MLP of width `shared` beside them unless that is 0."""
    module = "block_sparse_moe"
    names = {"router": f"{module}.router", "module": f"{module}.experts"}
    e = experts(c, count, keys=("num_local_experts",), routing="best_first", **names)
    return Mixture(
        e, routing={"widened": True, "function": "softmax"}, shared=shared, shared_mlp=fused_shared, balanced=True
    )


def fused_shared(b: BlockBuilder, x: Value, m: Mixture) -> Value:
    return fused_mlp(b, x, width=m.shared, function=m.experts.function)


def fused_mlp(b: BlockBuilder, x: Value, *, width: int, function: str) -> Value:
    """Granite's shared MLP: gate and up in one product."""
    gate, up = b.split(b.linear(x, "shared_mlp.input_linear", 2 * width, part="mlp"), [width, width])
    h = b.multiply(b.activation(gate, function, "shared_mlp.activation"), up)
    return b.linear(h, "shared_mlp.output_linear", x.width, shard="row", part="mlp")


def windowed_layers(c: Config) -> list[LayerKind]:
    """Every fourth layer is full; layers can have rotary tables of their own, or no rotary positions."""
    thetas = c.by_layer("layer_rope_theta", empty_is_absent=True) or [1.0] * c.num_hidden_layers
    kinds = typed_layers(c, ["sliding_attention" if i % 4 else "full_attention" for i in range(c.num_hidden_layers)])
    return [
        replace(kind, turned=bool(theta), table=f"theta {theta}") for kind, theta in zip(kinds, thetas, strict=True)
    ]
