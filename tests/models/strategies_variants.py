"""Small configs of the families that are one decoder layer with switches, and of GPT-BigCode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]


@st.composite
def decoder(draw: st.DrawFn, model_type: str, **switches: st.SearchStrategy[Any]) -> Config:
    groups = draw(st.sampled_from([1, 2, 3]))
    heads = groups * draw(st.sampled_from([1, 2, 4]))
    config: Config = {
        "model_type": model_type,
        "hidden_size": heads * 16,
        "intermediate_size": draw(st.integers(5, 40)) * 2,
        "num_hidden_layers": draw(st.integers(1, 5)),
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "vocab_size": draw(st.integers(17, 90)),
        "tie_word_embeddings": draw(st.booleans()),
        "max_position_embeddings": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    config.update({name: draw(strategy) for name, strategy in switches.items()})
    return config


def gpt_bigcode() -> st.SearchStrategy[Config]:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("gpt_bigcode"),
            "n_embd": st.sampled_from([16, 32, 48]),
            "n_layer": st.integers(1, 3),
            "n_head": st.sampled_from([1, 2]),
            "n_inner": st.none() | st.integers(3, 90),
            "n_positions": st.integers(16, 64),
            "vocab_size": st.integers(17, 90),
            "multi_query": st.booleans(),
            "tie_word_embeddings": st.booleans(),
            "bos_token_id": st.just(1),
            "eos_token_id": st.just(2),
            "attn_pdrop": st.sampled_from([0.0, 0.1]),
            "resid_pdrop": st.sampled_from([0.0, 0.1]),
            "embd_pdrop": st.sampled_from([0.0, 0.1]),
        }
    )


FLAG = st.booleans()
HEAD_DIM = st.sampled_from([8, 16, 24])
WINDOW = st.none() | st.sampled_from([4, 32])
SHARE = st.sampled_from([0.5, 1.0])

STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "cohere": lambda: decoder("cohere", attention_bias=FLAG, use_qk_norm=FLAG),
    "glm": lambda: decoder("glm", attention_bias=FLAG, head_dim=HEAD_DIM, partial_rotary_factor=SHARE),
    "glm4": lambda: decoder("glm4", attention_bias=FLAG, head_dim=HEAD_DIM, partial_rotary_factor=SHARE),
    "gpt_bigcode": gpt_bigcode,
    "granite": lambda: decoder("granite", attention_bias=FLAG, mlp_bias=FLAG),
    "helium": lambda: decoder("helium", attention_bias=FLAG, mlp_bias=FLAG, head_dim=st.just(16)),
    "nemotron": lambda: decoder(
        "nemotron", attention_bias=FLAG, mlp_bias=FLAG, head_dim=st.none() | HEAD_DIM, partial_rotary_factor=SHARE
    ),
    "olmo": lambda: decoder("olmo", attention_bias=FLAG, clip_qkv=st.none() | st.just(8.0)),
    "olmo2": lambda: decoder("olmo2", attention_bias=FLAG),
    "phi": lambda: decoder("phi", qk_layernorm=FLAG, partial_rotary_factor=SHARE),
    "phi3": lambda: decoder("phi3", sliding_window=WINDOW, partial_rotary_factor=SHARE),
    "smollm3": lambda: decoder(
        "smollm3",
        attention_bias=FLAG,
        mlp_bias=FLAG,
        use_sliding_window=FLAG,
        sliding_window=WINDOW,
        no_rope_layer_interval=st.sampled_from([2, 4]),
    ),
    "stablelm": lambda: decoder(
        "stablelm", use_qkv_bias=FLAG, qk_layernorm=FLAG, use_parallel_residual=FLAG, partial_rotary_factor=SHARE
    ),
    "starcoder2": lambda: decoder("starcoder2", use_bias=FLAG, sliding_window=WINDOW),
}
