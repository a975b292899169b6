"""Small configs of Dory, in the class's own layout and in that of its published configs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]
FLAG = st.booleans()


@st.composite
def dory(draw: st.DrawFn) -> Config:
    first, looped, last = (draw(st.integers(0, 2)), draw(st.integers(1, 2)), draw(st.integers(0, 1)))
    groups, layers = draw(st.integers(1, 2)), first + looped + last
    kinds = st.sampled_from(["full_attention", "sliding_attention"])
    types = draw(st.none() | st.lists(kinds, min_size=layers, max_size=layers))
    config = {"num_hidden_layers": layers, "n_input_layers": first, "n_output_layers": last}
    if draw(FLAG):
        config["n_recurrent_layers"] = looped
    if types and draw(FLAG):  # the published layout
        types = [block for kind in types for block in (kind, "mlp")]
        config = {name: 2 * count for name, count in config.items()}
    return config | {
        "model_type": "dory", "vocab_size": draw(st.integers(17, 40)), "hidden_size": draw(st.sampled_from([16, 24])),
        "intermediate_size": draw(st.integers(5, 30)), "num_attention_heads": groups * draw(st.integers(1, 2)),
        "num_key_value_heads": groups, "head_dim": draw(st.sampled_from([8, 16])), "layer_types": types,
        "n_recurrent_loops": draw(st.integers(1, 3)), "attention_bias": draw(FLAG), "mlp_bias": draw(FLAG),
        "recurrent_kv_cache_mode": draw(st.sampled_from(["per_loop", "last_loop"])),
        "sliding_window": draw(st.sampled_from([4, 32])), "tie_word_embeddings": draw(FLAG),
        "attention_dropout": draw(st.sampled_from([0.0, 0.1])), "max_position_embeddings": 64,
    }  # fmt: skip


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {"dory": dory}
