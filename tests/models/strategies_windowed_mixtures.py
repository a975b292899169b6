"""Configs of decoders with experts whose layers take turns between sliding and full attention."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from strategies_mixtures import (
    DEEPSEEK,
    DROPOUT,
    FLAG,
    HEAD_DIM,
    TYPES,
    WIDTH,
    WINDOW,
    Config,
    mixture,
    with_layer_lists,
)

ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
KINDS = ("dense", "sparse")


def beam() -> st.SearchStrategy[Config]:
    tables = st.fixed_dictionaries(
        {"sliding_attention": st.sampled_from([ROPE, None]), "full_attention": st.sampled_from([ROPE, None])}
    )
    base = mixture(
        "beam", "num_experts", **DEEPSEEK, attention_bias=FLAG, head_dim=HEAD_DIM, sliding_window=WINDOW,
        rope_parameters=tables, final_logit_softcapping=st.none() | st.just(30.0), attention_dropout=DROPOUT,
    )  # fmt: skip
    return with_layer_lists(base, layer_types=TYPES, mlp_layer_types=KINDS)


def flint() -> st.SearchStrategy[Config]:
    base = mixture(
        "flint", "num_experts", head_dim=HEAD_DIM, moe_intermediate_size=WIDTH, sliding_window=WINDOW,
        shared_expert_intermediate_size=WIDTH, norm_topk_prob=FLAG, attention_bias=FLAG, attention_dropout=DROPOUT,
        decoder_sparse_step=st.integers(1, 2), mlp_only_layers=st.sampled_from([[], [0]]),
    )  # fmt: skip
    return with_layer_lists(base, layer_types=TYPES)


def lara_mini() -> st.SearchStrategy[Config]:
    base = mixture(
        "lara_mini", "num_experts", head_dim=HEAD_DIM, moe_intermediate_size=WIDTH, sliding_window=WINDOW,
        shared_expert_intermediate_size=WIDTH, norm_topk_prob=FLAG, attention_bias=FLAG, attention_dropout=DROPOUT,
        linear_key_head_dim=st.sampled_from([4, 8]), linear_value_head_dim=st.sampled_from([4, 6]),
        linear_conv_kernel_dim=st.sampled_from([2, 4]), linear_num_key_heads=st.integers(1, 2),
        linear_num_value_heads=st.sampled_from([2, 4]),
    )  # fmt: skip
    return with_layer_lists(base, layer_types=("linear_attention", *TYPES))


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "beam": beam,
    "flint": flint,
    "kolibri1": lambda: with_layer_lists(
        mixture(
            "kolibri1", "num_experts", head_dim=HEAD_DIM, moe_intermediate_size=WIDTH, sliding_window=WINDOW,
            shared_expert_intermediate_size=WIDTH, norm_topk_prob=FLAG, attention_dropout=DROPOUT,
        ),
        layer_types=TYPES,
    ),
    "lara_mini": lara_mini,
    "mellum": lambda: with_layer_lists(
        mixture(
            "mellum", "num_experts", head_dim=HEAD_DIM, moe_intermediate_size=WIDTH, sliding_window=WINDOW,
            norm_topk_prob=FLAG, attention_bias=FLAG, attention_dropout=DROPOUT,
        ),
        layer_types=TYPES, mlp_layer_types=KINDS,
    ),
}  # fmt: skip
