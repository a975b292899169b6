"""Beam: gated attention in windows, fp32 MLPs, each half of a layer weighed by depth, experts in groups."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design, HeadNorm, LayerKind, sliding_window
from vramwise.models.layers.mixture import Mixture, experts, grouped, sparse_layers
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.windows import every
from vramwise.models.operations.gates import WidenedGate


def widened_mlp(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """down(act(gate(x)) · up(x)), activation and product in fp32."""
    b.part = "mlp"
    gate, up = (b.linear(x, f"mlp.{name}_proj", c.intermediate_size) for name in ("gate", "up"))
    h = b.op(WidenedGate(function=c.text("hidden_act", "silu")), "mlp", [gate, up], [gate.width])[0]
    return b.linear(h, "mlp.down_proj", x.width, shard="row")


def layer_kinds(c: Config, types: Sequence[str]) -> list[LayerKind]:
    """A kind of layer with rotary parameters turns queries and keys; another scales queries by position."""
    rope, window = c.table("rope_parameters"), sliding_window(c)
    turned = {kind: rope.has(kind) if rope else kind == "sliding_attention" for kind in types}
    return [
        LayerKind(
            window if kind == "sliding_attention" else None, turned[kind], f"fp32 {kind}", mlp=partial(widened_mlp, c=c)
        )
        for kind in types
    ]


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    capped = {} if "final_logit_softcapping" in c.values else {"final_logit_softcapping": 30.0}
    c, count = completed(c)
    c = Config({**c.values, **capped}, c.model_id)
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
    m = Mixture(e, routing=groups, scaled=True)
    return mixture.model(c, s, m, sparse_layers(c, 3), layer_kinds(c, types))
