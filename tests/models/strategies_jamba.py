"""Small configs of decoders with Mamba layers whose time step, B and C are normed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from config_strategies import decoder
from hypothesis import strategies as st
from strategies_state_space import SHARED

Config = dict[str, Any]


def falcon_mamba() -> st.SearchStrategy[Config]:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("falcon_mamba"),
            "hidden_size": st.sampled_from([16, 24]),
            "expand": st.sampled_from([1, 2]),
            "time_step_rank": st.just("auto") | st.integers(1, 6),
            **SHARED,
        },
        optional={"intermediate_size": st.sampled_from([24, 32])},  # wins where it is not what `expand` makes
    )


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "falcon_mamba": falcon_mamba,
    "jamba": lambda: decoder(
        "jamba",
        intermediate_size=st.sampled_from([16, 24]),  # grouped products want rows of 16 bytes
        num_experts=st.sampled_from([1, 4]),
        num_experts_per_tok=st.just(1),
        expert_layer_period=st.just(2),
        expert_layer_offset=st.integers(0, 1),
        attn_layer_period=st.just(2),
        attn_layer_offset=st.integers(0, 1),
        mamba_d_state=st.sampled_from([4, 8]),
        mamba_d_conv=st.sampled_from([2, 4]),
        mamba_dt_rank=st.just("auto") | st.integers(1, 6),
        mamba_conv_bias=st.booleans(),
        mamba_proj_bias=st.booleans(),
    ),
}
