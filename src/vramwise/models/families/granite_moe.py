"""Granite with routed experts: the best logits first; a shared MLP beside them in some."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.design import Design, LayerKind
from vramwise.models.layers.mixture import Mixture, experts, full_layers, typed_layers
from vramwise.models.layers.mixture_defaults import completed


def granite(c: Config, count: int | None) -> mixture.Parts:
    module = "block_sparse_moe"
    e = experts(
        c,
        count,
        keys=("num_local_experts",),
        routing="best_first",
        router=f"{module}.router",
        module=f"{module}.experts",
    )
    shared = 0 if c.model_type == "granitemoe" else c.size("shared_intermediate_size", default=0, least=0)
    m = Mixture(
        e, routing={"widened": True, "function": "softmax"}, shared=shared, shared_mlp=fused_shared, balanced=True
    )
    bias = c.flag("attention_bias")
    swa = c.model_type == "granitemoe_swa"
    s = Design(qkv_bias=bias, output_bias=bias, scaled=True, scaled_logits=True, core="lse_sink" if swa else "")
    return s, m, [True] * c.num_hidden_layers, windowed_layers(c) if swa else full_layers(c)


def windowed_layers(c: Config) -> list[LayerKind]:
    """Every fourth layer is full; layers can have rotary tables of their own, or no rotary positions."""
    layers = c.num_hidden_layers
    thetas = c.items("layer_rope_theta") or [1.0] * layers
    if len(thetas) < layers:
        raise c.error(f"layer_rope_theta names {len(thetas)} layers, num_hidden_layers is {layers}")
    kinds = typed_layers(c, ["sliding_attention" if i % 4 else "full_attention" for i in range(layers)])
    return [
        replace(kind, turned=bool(theta), table=f"theta {theta}") for kind, theta in zip(kinds, thetas, strict=False)
    ]


def fused_shared(b: BlockBuilder, x: Value, m: Mixture) -> Value:
    return fused_mlp(b, x, m.shared, m.experts.function)


def fused_mlp(b: BlockBuilder, x: Value, width: int, function: str) -> Value:
    """Granite's shared MLP: gate and up in one product."""
    gate, up = b.split(b.linear(x, "shared_mlp.input_linear", 2 * width, part="mlp"), [width, width])
    h = b.multiply(b.activation(gate, function, "shared_mlp.activation"), up)
    return b.linear(h, "shared_mlp.output_linear", x.width, shard="row", part="mlp")


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    return mixture.model(c, *granite(c, count))
