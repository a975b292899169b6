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


DROPOUT = st.sampled_from([0.0, 0.1])
SPECIAL_TOKENS = {"bos_token_id": st.just(1), "eos_token_id": st.just(2), "pad_token_id": st.just(0)}


def openai_gpt() -> Strategy:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("openai-gpt"),
            "n_embd": st.sampled_from([16, 32, 48]),
            "n_layer": st.integers(1, 4),
            "n_head": st.sampled_from([1, 2, 4]),
            "n_positions": st.integers(16, 64),
            "vocab_size": st.integers(17, 90),
            "afn": st.sampled_from(["gelu", "relu", "silu", "swish"]),
            "attn_pdrop": DROPOUT,
            "tie_word_embeddings": st.booleans(),
        }
    )


def codegen() -> Strategy:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("codegen"),
            "n_embd": st.sampled_from([32, 64]),
            "n_layer": st.integers(1, 4),
            "n_head": st.sampled_from([4, 8]),
            "n_inner": st.none() | st.integers(3, 90),
            "n_positions": st.integers(24, 64),
            "rotary_dim": st.sampled_from([2, 4]),
            "vocab_size": st.integers(17, 90),
            "attn_pdrop": DROPOUT,
            "tie_word_embeddings": st.booleans(),
            **SPECIAL_TOKENS,
        }
    )


def biogpt() -> Strategy:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("biogpt"),
            "hidden_size": st.sampled_from([16, 32, 48]),
            "num_hidden_layers": st.integers(1, 4),
            "num_attention_heads": st.sampled_from([1, 2, 4]),
            "intermediate_size": st.integers(3, 90),
            "max_position_embeddings": st.integers(16, 64),
            "vocab_size": st.integers(17, 90),
            "attention_probs_dropout_prob": DROPOUT,
            "activation_dropout": DROPOUT,
            "scale_embedding": st.booleans(),
            "tie_word_embeddings": st.booleans(),
        }
    )


def xglm() -> Strategy:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("xglm"),
            "d_model": st.sampled_from([16, 32, 48]),
            "num_layers": st.integers(1, 4),
            "attention_heads": st.sampled_from([1, 2, 4]),
            "ffn_dim": st.integers(3, 90),
            "max_position_embeddings": st.integers(16, 64),
            "vocab_size": st.integers(17, 90),
            "attention_dropout": DROPOUT,
            "activation_dropout": DROPOUT,
            "scale_embedding": st.booleans(),
            "tie_word_embeddings": st.booleans(),
        }
    )


def gpt_neox_japanese() -> Strategy:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("gpt_neox_japanese"),
            "hidden_size": st.sampled_from([16, 32, 64]),
            "num_hidden_layers": st.integers(1, 4),
            "num_attention_heads": st.sampled_from([1, 2, 4]),
            "intermediate_multiple_size": st.integers(1, 4),
            "vocab_size": st.integers(17, 90),
            "partial_rotary_factor": st.sampled_from([0.5, 1.0]),
            "hidden_dropout": DROPOUT,
            "attention_dropout": DROPOUT,
            "tie_word_embeddings": st.booleans(),
            **SPECIAL_TOKENS,
        }
    )


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "biogpt": biogpt,
    "codegen": codegen,
    "gpt-sw3": gpt_sw3,
    "gpt_neox_japanese": gpt_neox_japanese,
    "openai-gpt": openai_gpt,
    "xglm": xglm,
}
