"""Small configs of ZAYA."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from strategies_mixtures import DROPOUT, FLAG, HEAD_DIM, SOME, WIDTH, WINDOW, Config, mixture, with_layer_lists


def rope(share: float) -> Config:
    return {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": share}


ROPES = {kind: st.sampled_from([rope(0.5), rope(1.0)]) for kind in ("hybrid", "hybrid_sliding")}

STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "zaya": lambda: with_layer_lists(
        mixture(
            "zaya", "num_experts", num_experts_per_tok=st.just(1), head_dim=HEAD_DIM, moe_intermediate_size=WIDTH,
            sliding_window=WINDOW, router_hidden_size=WIDTH, cca_time0=SOME, cca_time1=SOME, attention_bias=FLAG,
            lm_head_bias=FLAG, attention_dropout=DROPOUT, rope_parameters=st.fixed_dictionaries(ROPES),
        ),
        layer_types=("hybrid", "hybrid_sliding"),
    ),
}  # fmt: skip
