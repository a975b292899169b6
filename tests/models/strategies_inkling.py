"""Small configs of Inkling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]
COUNT = st.integers(1, 2)


@st.composite
def inkling(draw: st.DrawFn) -> Config:
    layers, vocabulary = draw(st.integers(1, 3)), draw(st.integers(17, 40))
    groups, swa_groups = draw(COUNT), draw(COUNT)
    kinds = st.sampled_from(["hybrid", "hybrid_sliding"])
    mlps = st.sampled_from(["dense", "sparse"])
    return {
        "model_type": "inkling_text",
        "vocab_size": vocabulary,
        "unpadded_vocab_size": draw(st.none() | st.integers(9, vocabulary)),
        "hidden_size": draw(st.sampled_from([16, 24])),
        "intermediate_size": draw(st.integers(5, 20)),
        "num_hidden_layers": layers,
        "num_attention_heads": groups * draw(COUNT),
        "num_key_value_heads": groups,
        "head_dim": draw(st.sampled_from([8, 16])),
        "swa_num_attention_heads": swa_groups * draw(COUNT),
        "swa_num_key_value_heads": swa_groups,
        "swa_head_dim": draw(st.sampled_from([8, 16])),
        "sliding_window_size": 4,
        "d_rel": draw(st.integers(2, 5)),
        "rel_extent": draw(st.integers(2, 9)),
        "log_scaling_n_floor": draw(st.none() | st.just(4)),
        "layer_types": draw(st.none() | st.lists(kinds, min_size=layers, max_size=layers)),
        "mlp_layer_types": draw(st.none() | st.lists(mlps, min_size=layers, max_size=layers)),
        "conv_kernel_size": draw(st.integers(2, 4)),
        "moe_intermediate_size": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": draw(COUNT),
        "n_shared_experts": draw(COUNT),
        "attention_dropout": draw(st.sampled_from([0.0, 0.1])),
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


@st.composite
def inkling2(draw: st.DrawFn) -> Config:
    """Only what both have in common, and blocks of one to three layers."""
    config = draw(inkling())
    others = ("intermediate_size", "mlp_layer_types", "n_shared_experts", "log_scaling_n_floor")
    shared = {name: value for name, value in config.items() if name not in others}
    return shared | {
        "model_type": "inkling2_text",
        "unpadded_vocab_size": config["unpadded_vocab_size"] or config["vocab_size"],
        "log_scaling_n_floor": 4,
        "n_layers_per_attn_res_block": draw(st.integers(1, 3)),
    }


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "inkling2_text": inkling2,
    "inkling_text": inkling,
}
