"""Qwen 2 and 3 MoE: Qwen's decoder with routed experts, in version 2 beside a gated shared one; layers can be dense."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_attention import grouped_attention
from vramwise.models.layers.decoder_design import Design, LayerKind, Piece, sliding_window
from vramwise.models.layers.mixture import Mixture, experts

# Defaults of the configuration classes (transformers 5.23).
_DEFAULTS: dict[str, dict[str, object]] = {
    "qwen2_moe": {
        "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
        "sliding_window": 4096,
    },
    "qwen3_moe": {"num_experts_per_tok": 8, "moe_intermediate_size": 768, "sliding_window": 4096},
}  # fmt: skip


def windows(c: Config) -> list[int | None]:
    """The window of each layer, None where attention is full."""
    window, layers = sliding_window(c), range(c.num_hidden_layers)
    if not c.flag("use_sliding_window"):
        return [None for _ in layers]
    if c.model_type == "qwen3_moe":
        return [window for _ in layers]
    types = c.layer_types()
    if types is not None:
        return [window if kind == "sliding_attention" else None for kind in types]
    first = c.size("max_window_layers", default=28, least=0)
    return [window if i % 2 == 0 and i < first else None for i in layers]


def attention(c: Config, window: int | None) -> Piece:
    """Version 2 has biases of queries, keys and values, version 3 norms of heads."""
    if c.model_type == "qwen2_moe":
        return partial(grouped_attention, c=c, bias=c.flag("qkv_bias", True), window=window)
    bias, norms = c.flag("attention_bias"), ("q_norm", "k_norm")
    return partial(grouped_attention, c=c, bias=bias, norms=norms, output_bias=bias, window=window)


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, balancing loss, head."""
    c, second = c.filled(_DEFAULTS[c.model_type]), c.model_type == "qwen2_moe"
    keys, normalized = ("num_experts", "num_local_experts"), c.flag("norm_topk_prob")
    m = Mixture(
        experts(c, 60 if second else 128, keys=keys, routing="qwen", normalized=normalized), balanced=True,
        shared=c.size("shared_expert_intermediate_size") if second else 0, shared_gate=second,
        jitters=int(c.number("router_jitter_noise") > 0),
    )  # fmt: skip
    dense, step = c.items("mlp_only_layers") or [], c.size("decoder_sparse_step", default=1)
    sparse = [i not in dense and (i + 1) % step == 0 for i in range(c.num_hidden_layers)]
    return mixture.model(c, Design(), m, sparse, [LayerKind(attention=attention(c, window)) for window in windows(c)])
