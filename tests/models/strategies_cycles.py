"""Small configs of models whose layers run several times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]


@st.composite
def hrm_text(draw: st.DrawFn) -> Config:
    heads = draw(st.sampled_from([1, 2]))
    return {
        "model_type": "hrm_text",
        "vocab_size": draw(st.integers(17, 40)),
        "hidden_size": heads * draw(st.sampled_from([8, 12])),
        "intermediate_size": draw(st.integers(5, 20)),
        "num_hidden_layers": draw(st.integers(1, 2)),
        "num_attention_heads": heads,
        "head_dim": draw(st.sampled_from([8, 16])),
        "attention_bias": draw(st.booleans()),
        "mlp_bias": draw(st.booleans()),
        "attention_dropout": draw(st.sampled_from([0.0, 0.1])),
        "H_cycles": draw(st.integers(1, 2)),
        "L_cycles": draw(st.integers(1, 3)),
        "L_bp_cycles": draw(st.sampled_from([None, [1], [2, 1], [3, 2]])),
        "tie_word_embeddings": draw(st.booleans()),
    }


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {"hrm_text": hrm_text}
