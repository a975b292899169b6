"""Decoders with experts whose layers take turns between sliding and full attention: Beam, Flint, Kolibri, Mellum."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.design import Design, HeadNorm, LayerKind, sliding_window
from vramwise.models.layers.mixture import Mixture, Parts, every, experts, grouped, sparse_layers, typed_layers
from vramwise.models.layers.mixture_defaults import completed

_KEYS = ("num_experts", "num_local_experts")


def widened_mlp(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """down(act(gate(x)) · up(x)), activation and product in fp32."""
    b.part = "mlp"
    gate, up = (b.linear(x, f"mlp.{name}_proj", c.intermediate_size) for name in ("gate", "up"))
    h = b.op("widened_gate", "mlp", [gate, up], [gate.width], function=c.text("hidden_act", "silu"))[0]
    return b.linear(h, "mlp.down_proj", x.width, shard="row")


def beam_layers(c: Config, types: Sequence[str]) -> list[LayerKind]:
    """A kind of layer with rotary parameters turns queries and keys; another scales queries by position."""
    rope, window = c.table("rope_parameters"), sliding_window(c)
    turned = {kind: rope.has(kind) if rope else kind == "sliding_attention" for kind in types}
    return [
        LayerKind(
            window if kind == "sliding_attention" else None, turned[kind], f"fp32 {kind}", mlp=partial(widened_mlp, c=c)
        )
        for kind in types
    ]


def beam(c: Config, count: int | None) -> Parts:
    e = experts(
        c, count, keys=("num_experts",), routing="deepseek_v3", normalized=c.flag("norm_topk_prob", True),
        gating="widened_halves",
    )  # fmt: skip
    bias = c.flag("attention_bias")
    s = Design(
        norm_style="fp32-product", qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("heads", style="fp32-product"),
        norms=("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
               "post_feedforward_layernorm"),
        rotary="half_fp32", gate=("gate_proj", "sigmoid_biased"), scaled_queries="unturned", shared_out=True,
        capped_logits=c.has("final_logit_softcapping"), widened_logits=c.has("final_logit_softcapping"),
    )  # fmt: skip
    types = c.layer_types() or [*every(c, 6)[:-1], "full_attention"]
    groups = grouped(c.filled({"n_group": 8, "topk_group": 4}), e)
    if e.num_experts // groups["num_groups"] < 2 or e.experts_per_token > groups["num_chosen_groups"] * (
        e.num_experts // groups["num_groups"]
    ):
        raise c.error("each group needs two experts, and the chosen groups as many as a token meets")
    return s, Mixture(e, routing=groups, scaled=True), sparse_layers(c, 3), beam_layers(c, types)


def flint(c: Config, count: int | None) -> Parts:
    """Sinks beside fp32 scores, only sliding layers turned, dense layers by number."""
    e = experts(c, count, keys=_KEYS, routing="fp32_sigmoid", normalized=c.flag("norm_topk_prob", True))
    bias, layers = c.flag("attention_bias"), range(c.num_hidden_layers)
    s = Design(
        norm_style="fp32-product", qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("heads", style="fp32-product"),
        core="fp32_sink",
    )  # fmt: skip
    full = ((i < 2 or i % 4 == 1 or i == layers[-1]) for i in layers)
    types = ["full_attention" if see_all else "sliding_attention" for see_all in full]
    dense, step = c.items("mlp_only_layers"), c.size("decoder_sparse_step", default=1)
    sparse = [i not in ([0, 1] if dense is None else dense) and (i + 1) % step == 0 for i in layers]
    m = Mixture(
        e, shared=c.size("shared_expert_intermediate_size", default=1024), shared_module="mlp.shared_expert",
        balanced=True,
    )  # fmt: skip
    return s, m, sparse, typed_layers(c, types, unturned="full_attention")


def kolibri1(c: Config, count: int | None) -> Parts:
    """Only sliding layers are turned, where there is a window."""
    e = experts(c, count, keys=_KEYS, routing="logit_first", normalized=c.flag("norm_topk_prob"))
    s = Design(
        norms=("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"),
        qk_norm=HeadNorm("heads_first"),
    )  # fmt: skip
    kinds = typed_layers(c, every(c, 5), unturned="full_attention" if sliding_window(c) else "")
    shared = c.size("shared_expert_intermediate_size", default=512)
    return s, Mixture(e, shared=shared), [True] * c.num_hidden_layers, kinds


def mellum(c: Config, count: int | None) -> Parts:
    e = experts(c, count, keys=_KEYS, routing="qwen", normalized=c.flag("norm_topk_prob", True))
    bias = c.flag("attention_bias")
    s = Design(qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("heads"))
    kinds = typed_layers(c, ["full_attention"] * c.num_hidden_layers, tables=True)
    return s, Mixture(e, balanced=True), sparse_layers(c, 0), kinds


_PARTS = {"beam": beam, "flint": flint, "kolibri1": kolibri1, "mellum": mellum}


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    absent = "final_logit_softcapping" not in c.values and c.model_type == "beam"
    c, count = completed(c)
    c = Config({**c.values, "final_logit_softcapping": 30.0}, c.model_id) if absent else c
    return mixture.model(c, *_PARTS[c.model_type](c, count))
