"""Small configs of models whose layers run several times, or on patches of bytes."""

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


@st.composite
def blt(draw: st.DrawFn) -> Config:
    """Local transformers of one width, so that their embedding can be tied to the head."""
    width, middle = 8 * draw(st.integers(1, 2)), 8 * draw(st.integers(1, 3))

    def part(hidden: int, **more: Any) -> Config:
        groups = draw(st.sampled_from([1, 2]))
        sizes = {
            "vocab_size": 20, "hidden_size": hidden, "num_attention_heads": 2, "num_key_value_heads": groups,
            "num_hidden_layers": draw(st.integers(1, 2)), "intermediate_size": draw(st.integers(5, 20)),
        }  # fmt: skip
        return sizes | more

    across = draw(st.integers(1, 2))
    local: Config = {"hidden_size_global": middle, "cross_attn_k": across}
    return {
        "model_type": "blt",
        "vocab_size": 20,
        "cross_attn_k": across,
        "encoder_hash_byte_group_size": draw(st.sampled_from([None, [3, 4]])),
        "encoder_hash_byte_group_vocab": draw(st.integers(5, 12)),
        "encoder_hash_byte_group_nb_functions": draw(st.integers(1, 2)),
        "local_attention_window_len": draw(st.sampled_from([None, 4])),
        "patch_in_forward": draw(st.booleans()),
        "patcher_config": part(8 * draw(st.integers(1, 2))),
        "encoder_config": part(width, **local, cross_attn_all_layers=draw(st.booleans())),
        "decoder_config": part(width, **local, cross_attn_all_layers=draw(st.booleans())),
        "global_config": part(middle),
        "tie_word_embeddings": draw(st.booleans()),
    }


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {"blt": blt, "hrm_text": hrm_text}
