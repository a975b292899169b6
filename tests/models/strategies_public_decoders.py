"""Small configs of OPT, GPT-NeoX, BLOOM and GPT-J."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Strategy = st.SearchStrategy[dict[str, Any]]


def opt() -> Strategy:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("opt"),
            "hidden_size": st.sampled_from([16, 32, 48]),
            "word_embed_proj_dim": st.none() | st.sampled_from([8, 16, 48]),
            "num_hidden_layers": st.integers(1, 4),
            "num_attention_heads": st.sampled_from([1, 2, 4]),
            "ffn_dim": st.integers(3, 90),
            "vocab_size": st.integers(17, 90),
            "max_position_embeddings": st.integers(8, 64),
            "do_layer_norm_before": st.booleans(),
            "_remove_final_layer_norm": st.booleans(),
            "enable_bias": st.booleans(),
            "layer_norm_elementwise_affine": st.booleans(),
            "tie_word_embeddings": st.booleans(),
        }
    )


def gpt_neox() -> Strategy:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("gpt_neox"),
            "hidden_size": st.sampled_from([16, 32, 48]),
            "num_hidden_layers": st.integers(1, 4),
            "num_attention_heads": st.sampled_from([1, 2, 4]),
            "intermediate_size": st.integers(3, 90),
            "vocab_size": st.integers(17, 90),
            "rotary_pct": st.sampled_from([0.25, 0.5, 1.0]),
            "use_parallel_residual": st.booleans(),
            "attention_bias": st.booleans(),
            "tie_word_embeddings": st.booleans(),
        }
    )


def bloom() -> Strategy:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("bloom"),
            "hidden_size": st.sampled_from([16, 32, 48]),
            "n_layer": st.integers(1, 4),
            "n_head": st.sampled_from([1, 2, 4]),
            "vocab_size": st.integers(17, 90),
            "apply_residual_connection_post_layernorm": st.booleans(),
            "tie_word_embeddings": st.booleans(),
        }
    )


def gptj() -> Strategy:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("gptj"),
            "n_embd": st.sampled_from([16, 32, 48]),
            "n_layer": st.integers(1, 4),
            "n_head": st.sampled_from([1, 2, 4]),
            "n_inner": st.none() | st.integers(3, 90),
            "n_positions": st.integers(24, 64),
            "rotary_dim": st.sampled_from([2, 4]),
            "vocab_size": st.integers(17, 90),
            "tie_word_embeddings": st.booleans(),
        }
    )


STRATEGIES: dict[str, Callable[[], Strategy]] = {"bloom": bloom, "gpt_neox": gpt_neox, "gptj": gptj, "opt": opt}
