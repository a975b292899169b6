"""Small configs of the first generation of decoders: GPT and the classes that write out their own attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Strategy = st.SearchStrategy[dict[str, Any]]


def gpt_sw3() -> Strategy:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("gpt-sw3"),
            "n_embd": st.sampled_from([16, 32, 48]),
            "n_layer": st.integers(1, 4),
            "n_head": st.sampled_from([1, 2, 4]),
            "n_inner": st.none() | st.integers(3, 90),
            "n_positions": st.integers(16, 64),
            "vocab_size": st.integers(17, 90),
            "tie_word_embeddings": st.booleans(),
        }
    )


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "gpt-sw3": gpt_sw3,
}
