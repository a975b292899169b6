"""Small configs of state-space models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]

SHARED: dict[str, st.SearchStrategy[Any]] = {
    "state_size": st.sampled_from([4, 8]),
    "num_hidden_layers": st.integers(1, 4),
    "conv_kernel": st.sampled_from([2, 4]),
    "use_bias": st.booleans(),
    "use_conv_bias": st.booleans(),
    "residual_in_fp32": st.booleans(),
    "vocab_size": st.integers(17, 90),
    "tie_word_embeddings": st.booleans(),
}


def mamba() -> st.SearchStrategy[Config]:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("mamba"),
            "hidden_size": st.sampled_from([16, 24, 40]),
            "expand": st.sampled_from([1, 2]),
            "time_step_rank": st.just("auto") | st.integers(1, 6),
            **SHARED,
        },
        optional={"intermediate_size": st.sampled_from([24, 32])},  # wins where it is not what `expand` makes
    )


@st.composite
def mamba2(draw: st.DrawFn) -> Config:
    groups, head_dim = draw(st.sampled_from([1, 2])), draw(st.sampled_from([4, 8]))
    heads = groups * draw(st.sampled_from([2, 4]))
    config = {
        "model_type": "mamba2",
        "expand": 2,
        "hidden_size": heads * head_dim // 2,
        "num_heads": heads,
        "head_dim": head_dim,
        "n_groups": groups,
        "chunk_size": draw(st.sampled_from([4, 8])),
    }
    return config | {name: draw(strategy) for name, strategy in SHARED.items()}


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {"mamba": mamba, "mamba2": mamba2}
