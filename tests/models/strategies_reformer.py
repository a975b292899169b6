"""Small configs of Reformer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]

STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "reformer": lambda: st.fixed_dictionaries(
        {
            "model_type": st.just("reformer"),
            "is_decoder": st.just(True),
            "vocab_size": st.integers(17, 40),
            "hidden_size": st.just(24),
            "num_attention_heads": st.integers(1, 3),
            "attention_head_size": st.sampled_from([8, 12]),
            "feed_forward_size": st.integers(5, 30),
            "attn_layers": st.lists(st.sampled_from(["local", "lsh"]), min_size=1, max_size=3),
            "max_position_embeddings": st.just(64),
            "axial_pos_embds": st.booleans(),
            "axial_pos_shape": st.sampled_from([[8, 8], [4, 16]]),
            "axial_pos_embds_dim": st.sampled_from([[8, 16], [12, 12]]),
        }
    )
}
