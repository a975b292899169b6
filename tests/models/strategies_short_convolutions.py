"""Small configs of decoders with layers of short convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from config_strategies import decoder
from hypothesis import strategies as st

Config = dict[str, Any]


@st.composite
def lfm2(draw: st.DrawFn, model_type: str, **switches: st.SearchStrategy[Any]) -> Config:
    config = draw(decoder(model_type, conv_bias=st.booleans(), conv_L_cache=st.sampled_from([2, 3]), **switches))
    sliding = ["sliding_attention"] if model_type == "lfm3" else []
    kinds = st.sampled_from(["conv", "full_attention", *sliding])
    layers = config["num_hidden_layers"]
    return config | {"layer_types": draw(st.lists(kinds, min_size=layers, max_size=layers))}


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "lfm2": lambda: lfm2(
        "lfm2",
        block_auto_adjust_ff_dim=st.booleans(),
        block_multiple_of=st.sampled_from([8, 24]),
        block_ffn_dim_multiplier=st.sampled_from([0.5, 1.0, 1.3]),
    ),
    "lfm2_moe": lambda: lfm2(
        "lfm2_moe",
        num_dense_layers=st.integers(0, 2),
        num_experts=st.sampled_from([4, 6]),
        num_experts_per_tok=st.sampled_from([1, 2]),
        moe_intermediate_size=st.sampled_from([8, 24]),
        use_expert_bias=st.booleans(),
        norm_topk_prob=st.booleans(),
    ),
    "lfm3": lambda: lfm2(
        "lfm3",
        head_dim=st.sampled_from([8, 24]),
        sliding_window=st.sampled_from([3, 16]),
        use_sandwich_norm=st.booleans(),
        use_attention_gate=st.booleans(),
        attention_bias=st.booleans(),
        attention_dropout=st.sampled_from([0.0, 0.1]),
        pad_token_id=st.just(0),
        bos_token_id=st.just(1),
        eos_token_id=st.just(2),
    ),
}
