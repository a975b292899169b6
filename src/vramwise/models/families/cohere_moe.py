"""Command with routed experts: parallel residual, alternating windows, dense layers first."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design
from vramwise.models.layers.mixture import Mixture, Parts, experts, sparse_layers
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.layers.windows import typed_layers


def parts(c: Config, count: int | None) -> Parts:
    """Parallel residual; the layers without a window are not turned, but for dense ones in a prefix of full layers."""
    function = c.text("expert_selection_fn", "softmax")
    if function not in ("softmax", "sigmoid"):
        raise c.error(f'expert_selection_fn: expected "softmax" or "sigmoid", got "{function}"')
    e = experts(
        c,
        count,
        keys=("num_experts", "num_local_experts"),
        routing="cohere2_moe",
        normalized=c.flag("norm_topk_prob", True),
    )
    e = replace(e, intermediate_size=c.intermediate_size)
    shared = c.size("num_shared_experts", default=0, least=0) * c.intermediate_size
    average = c.text("shared_expert_combination_strategy", "average") == "average"
    m = Mixture(e, routing={"function": function}, shared=shared, joined="mean" if average else "sum")
    bias, prefix = c.flag("attention_bias"), c.size("first_k_dense_replace", default=0, least=0)
    layer_norm = c.get("rms_norm_eps") is None
    s = Design(
        norm="layer" if layer_norm else "rms", norm_style="python" if layer_norm else "llama",
        norms=("input_layernorm", None, None, None), qkv_bias=bias, output_bias=bias, rotary="pairs_fp32",
        scaled_logits=True, tied=True,
    )  # fmt: skip
    period = c.size("prefix_dense_sliding_window_pattern", default=1)
    pattern = c.size("sliding_window_pattern", default=4)
    ends = [i % period == period - 1 for i in range(prefix)]
    ends += [i % pattern == pattern - 1 for i in range(c.num_hidden_layers - prefix)]
    default = ["full_attention" if end else "sliding_attention" for end in ends]
    sparse = sparse_layers(c, prefix)
    width = c.size("prefix_dense_intermediate_size", default=c.intermediate_size)
    dense = partial(dense_mlp, width=width, function=e.function)
    kinds = [
        replace(kind, turned=kind.window is not None or (not flag and period == 1), mlp=dense)
        for kind, flag in zip(typed_layers(c, default), sparse, strict=True)
    ]
    return s, m, sparse, kinds


def dense_mlp(b: BlockBuilder, x: Value, *, width: int, function: str) -> Value:
    return gated_mlp(b, x, width, function)


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    return mixture.model(c, *parts(c, count))
