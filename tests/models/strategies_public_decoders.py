"""Small configs of OPT, GPT-NeoX, BLOOM, GPT-J, GPT-Neo and Falcon."""

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
            "max_position_embeddings": st.integers(9, 64),
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


@st.composite
def falcon(draw: st.DrawFn) -> dict[str, Any]:
    """Leaves out the switches together with which the class cannot run."""
    heads = draw(st.sampled_from([1, 2, 4]))
    grouped = draw(st.booleans())
    config: dict[str, Any] = {
        "model_type": "falcon",
        "hidden_size": heads * draw(st.sampled_from([8, 16])),
        "num_hidden_layers": draw(st.integers(1, 4)),
        "num_attention_heads": heads,
        "vocab_size": draw(st.integers(17, 90)),
        "ffn_hidden_size": draw(st.none() | st.integers(3, 90)),
        "new_decoder_architecture": grouped,
        "multi_query": draw(st.booleans()),
        "alibi": draw(st.booleans()),
        "bias": draw(st.booleans()),
        "tie_word_embeddings": draw(st.booleans()),
    }
    if grouped:
        groups = st.sampled_from([group for group in (1, 2, 4) if group <= heads])
        return config | {"num_kv_heads": draw(groups), "num_ln_in_parallel_attn": draw(st.none() | st.just(1))}
    return config | {"parallel_attn": draw(st.booleans())}


@st.composite
def gpt_neo(draw: st.DrawFn) -> dict[str, Any]:
    kinds = draw(st.sampled_from([["global", "local"], ["global"], ["local"]]))
    times = draw(st.integers(1, 2))
    return {
        "model_type": "gpt_neo",
        "hidden_size": draw(st.sampled_from([16, 32, 48])),
        "num_layers": len(kinds) * times,
        "num_heads": draw(st.sampled_from([1, 2, 4])),
        "attention_types": [[kinds, times]],
        "window_size": draw(st.sampled_from([3, 16])),
        "intermediate_size": draw(st.none() | st.integers(3, 90)),
        "max_position_embeddings": draw(st.integers(24, 64)),
        "vocab_size": draw(st.integers(17, 90)),
        "tie_word_embeddings": draw(st.booleans()),
    }


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "bloom": bloom,
    "falcon": falcon,
    "gpt_neo": gpt_neo,
    "gpt_neox": gpt_neox,
    "gptj": gptj,
    "opt": opt,
}
