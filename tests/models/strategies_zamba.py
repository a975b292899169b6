"""Small configs of decoders whose layers share transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from config_strategies import decoder
from hypothesis import strategies as st

Config = dict[str, Any]


@st.composite
def zamba(draw: st.DrawFn, model_type: str, **switches: st.SearchStrategy[Any]) -> Config:
    config = draw(decoder(model_type, n_mamba_heads=st.sampled_from([1, 2]), **switches))
    # The class of Zamba cannot tie a transformer to itself: there are two at least.
    more = draw(st.lists(st.sampled_from(["linear_attention", "hybrid"]), max_size=2))
    kinds = draw(st.permutations(["linear_attention", "hybrid", "hybrid", *more]))
    if config.get("use_shared_attention_adapter"):  # adapters of keys and values are as wide as the queries'
        config["num_key_value_heads"] = config["num_attention_heads"]
    return config | {"layers_block_type": list(kinds), "num_hidden_layers": len(kinds)}


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "zamba": lambda: zamba(
        "zamba",
        mamba_d_state=st.sampled_from([4, 8]),
        mamba_conv_bias=st.booleans(),
        mamba_proj_bias=st.booleans(),
        mamba_dt_rank=st.just("auto") | st.integers(1, 6),
    ),
    "zamba2": lambda: zamba(
        "zamba2",
        mamba_d_state=st.sampled_from([4, 8]),
        chunk_size=st.sampled_from([4, 8]),
        num_mem_blocks=st.sampled_from([1, 2]),
        adapter_rank=st.sampled_from([2, 4]),
        use_shared_attention_adapter=st.booleans(),
        use_mem_rope=st.booleans(),
    ),
}
