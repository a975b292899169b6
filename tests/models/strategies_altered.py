"""Small configs of families whose attention is altered: differences, sinks, latent vectors, capped scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from strategies_gemma import language_model
from strategies_variants import FLAG, HEAD_DIM, WINDOW, decoder

Config = dict[str, Any]
Strategy = st.SearchStrategy[Config]
REACHED = st.sampled_from([4, 32])


@st.composite
def diffllama(draw: st.DrawFn) -> Config:
    """An even number of key-value heads."""
    groups = draw(st.sampled_from([2, 4]))
    heads = groups * draw(st.sampled_from([1, 2]))
    config = draw(decoder("diffllama", attention_bias=FLAG, head_dim=st.none() | HEAD_DIM))
    return {**config, "num_key_value_heads": groups, "num_attention_heads": heads, "hidden_size": heads * 16}


@st.composite
def granite_swa(draw: st.DrawFn) -> Config:
    """Some layers without rotary positions, some with another base."""
    config = draw(decoder("granite_swa", attention_bias=FLAG, mlp_bias=FLAG, sliding_window=REACHED))
    bases = st.lists(
        st.sampled_from([0, 10_000.0, 500_000.0]),
        min_size=config["num_hidden_layers"],
        max_size=config["num_hidden_layers"],
    )
    return {**config, "layer_rope_theta": draw(st.none() | bases)}


@st.composite
def minicpm3(draw: st.DrawFn) -> Config:
    config = draw(decoder("minicpm3", attention_bias=FLAG, mlp_bias=FLAG, v_head_dim=st.none() | HEAD_DIM))
    return {
        **config,
        "num_key_value_heads": config["num_attention_heads"],
        "q_lora_rank": draw(st.none() | st.integers(4, 16)),
        "kv_lora_rank": draw(st.integers(4, 16)),
        "qk_nope_head_dim": draw(st.sampled_from([8, 12])),
        "qk_rope_head_dim": draw(st.sampled_from([4, 8])),
    }


def doge() -> Strategy:
    return decoder(
        "doge",
        attention_bias=FLAG,
        mlp_bias=FLAG,
        sliding_window=WINDOW,
        keep_window_size=st.sampled_from([2, 64]),
        hidden_dropout=st.sampled_from([0.0, 0.1]),
    )


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "diffllama": diffllama,
    "doge": doge,
    "granite_swa": granite_swa,
    "minicpm3": minicpm3,
    "vaultgemma": lambda: language_model("vaultgemma"),
}
