"""Small configs of MPT that the class of transformers can express."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st


def mpt() -> st.SearchStrategy[dict[str, Any]]:
    attention = st.fixed_dictionaries({"alibi": st.just(True), "clip_qkv": st.none() | st.just(0.5)})
    return st.fixed_dictionaries(
        {
            "model_type": st.just("mpt"),
            "d_model": st.sampled_from([24, 48]),
            "n_heads": st.sampled_from([1, 2, 3, 4]),
            "n_layers": st.integers(1, 3),
            "max_seq_len": st.sampled_from([16, 32]),
            "vocab_size": st.integers(17, 90),
            "learned_pos_emb": st.booleans(),
            "attn_config": attention,
            "tie_word_embeddings": st.booleans(),
        }
    )


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[dict[str, Any]]]] = {"mpt": mpt}
