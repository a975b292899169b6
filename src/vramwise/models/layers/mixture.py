"""Decoders with the switches of `decoder_design` whose sparse layers have routed experts beside shared ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, Literal

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers import decoder
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.mlp import gated_mlp, plain_mlp
from vramwise.models.layers.routed_experts import Experts, balancing_loss, checked, expert_mlps, routed, routed_experts
from vramwise.models.operations.experts import Jitter
from vramwise.models.operations.gates import AddWidened
from vramwise.records import record


@record
class Mixture:
    """What the sparse layers of a family have in place of an MLP.

    `shared`: width of the shared experts, 0 without any, in `shared_module`, and `shared_gate` weighs them by a sigmoid
    for each token; `joined` says how their result meets the routed one's; `routing` are settings of the router's own
    code path, `correction` the parameter that corrects the choice of experts (buffers are no parameters); `narrow`: the
    width of the copy of the stream that the experts work on, 0 without one, `narrow_norm` names the norm of what they
    make there; `jitters`: how often noise is multiplied
    in; `balanced`: whether the class can add a balancing loss.
    """

    experts: Experts
    routing: Mapping[str, object] = field(default_factory=dict)
    correction: tuple[str, str, tuple[int, ...]] | None = None
    shared: int = 0
    shared_module: str = "mlp.shared_experts"
    shared_mlp: Callable[[BlockBuilder, Value, Mixture], Value] | None = None
    shared_gate: bool = False
    narrow: int = 0
    narrow_norm: str | None = None
    bias: bool = False
    joined: Literal["sum", "mean", "fp32"] = "sum"
    scaled: bool = False
    jitters: int = 0
    norm: str | None = None
    balanced: bool = False


Parts = tuple[Design, Mixture, Sequence[bool], Sequence[LayerKind]]
"""What `model` needs: switches, experts, which layers are sparse, and what differs between layers."""


def feed_forward(b: BlockBuilder, x: Value, *, m: Mixture) -> Value:
    """Routed experts, plus the shared ones where there are any."""
    for _ in range(m.jitters):
        x = b.unary(Jitter(), x, "mlp")
    if m.shared_gate:
        return with_gated_shared_expert(b, x, m.experts, m.shared)
    h, (weights, indices) = x, routed(b, x, m.experts, correction=m.correction, **m.routing)
    beside = m.experts.module.rpartition(".")[0]
    if m.narrow:
        h = b.linear(h, f"{beside}.fc1_latent_proj", m.narrow, bias=m.bias, shard="replicated", part="mlp")
    h = expert_mlps(b, h, weights, indices, m.experts)
    if m.narrow:
        h = b.rms_norm(h, m.narrow_norm) if m.narrow_norm else h
        h = b.linear(h, f"{beside}.fc2_latent_proj", x.width, bias=m.bias, shard="replicated", part="mlp")
    h = b.scale(h) if m.scaled else h
    if m.shared:
        build = m.shared_mlp or shared_experts
        h = (
            b.op(AddWidened(), "", [h, build(b, x, m)], [x.width])[0]
            if m.joined == "fp32"
            else b.add(h, build(b, x, m))
        )
    h = b.scale(h) if m.joined == "mean" and m.shared else h
    return b.rms_norm(h, m.norm) if m.norm else h


def shared_experts(b: BlockBuilder, x: Value, m: Mixture) -> Value:
    """The shared experts as one MLP of the routed ones' kind."""
    build = gated_mlp if m.experts.gated else plain_mlp
    return build(b, x, m.shared, m.experts.function, module=m.shared_module, bias=m.bias)


def with_gated_shared_expert(b: BlockBuilder, x: Value, e: Experts, width: int) -> Value:
    """Routed experts, plus a shared one times the sigmoid of a number for each token (Qwen 2 MoE)."""
    shared = gated_mlp(b, x, width, e.function, module="mlp.shared_expert")
    h = routed_experts(b, x, e)
    gate = b.linear(x, "mlp.shared_expert_gate", 1, shard="replicated", part="mlp")
    return b.add(h, b.multiply(shared, b.activation(gate, "sigmoid", "mlp")))


def grouped(c: Config, e: Experts, groups: str = "n_group", chosen: str = "topk_group") -> dict[str, Any]:
    """Settings of a router that looks for experts in the best groups only."""
    num_groups, num_chosen = c.size(groups, default=1), c.size(chosen, default=1)
    if e.num_experts % num_groups or num_chosen > num_groups:
        raise c.error(f"{groups} ({num_groups}) must divide the number of experts ({e.num_experts}) and reach {chosen}")
    return {"num_groups": num_groups, "num_chosen_groups": num_chosen}


def narrowed(c: Config, m: Mixture) -> Mixture:
    """Routed experts that work on a narrower copy of the stream, where the config says its width (Kimi K3)."""
    if not c.has("routed_expert_hidden_size"):
        return m
    norm = f"{m.experts.module.rpartition('.')[0]}.routed_expert_norm" if c.flag("latent_moe_use_norm") else None
    return replace(m, narrow=c.size("routed_expert_hidden_size"), narrow_norm=norm)


def experts(
    c: Config, count: int | None, *, keys: Sequence[str], routing: str, chosen: str = "num_experts_per_tok", **more: Any
) -> Experts:
    """The routed experts by the keys of the family's config; `count` is the class's default."""
    e = Experts(
        num_experts=c.size(*keys, default=count), experts_per_token=c.size(chosen),
        intermediate_size=c.size("moe_intermediate_size", "intermediate_size"), function=c.text("hidden_act", "silu"),
        routing=routing, **more,
    )  # fmt: skip
    return checked(c, e, chosen)


def sparse_layers(c: Config, dense_first: int) -> list[bool]:
    """Which layers are sparse: by `mlp_layer_types` where given, else all after the first `dense_first`."""
    types = c.by_layer("mlp_layer_types")
    if types is None:
        return [i >= dense_first for i in range(c.num_hidden_layers)]
    return [kind == "sparse" for kind in types]


def model(c: Config, s: Design, m: Mixture, sparse: Sequence[bool], kinds: Sequence[LayerKind]) -> tuple[Block, ...]:
    """Embedding, layers, balancing loss, head."""
    mlp = partial(feed_forward, m=m)
    kinds = [replace(kind, mlp=mlp) if flag else kind for kind, flag in zip(kinds, sparse, strict=True)]
    *body, head = decoder.model(c, s, kinds)
    loss = balancing_loss(c, m.experts, sum(sparse)) if m.balanced else ()
    return (*body, *loss, head)
