"""Small configs of encoders and encoder-decoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]


def bert(model_type: str) -> st.SearchStrategy[Config]:
    return st.fixed_dictionaries(
        {
            "model_type": st.just(model_type),
            "hidden_size": st.sampled_from([16, 32, 48]),
            "intermediate_size": st.integers(5, 90),
            "num_hidden_layers": st.integers(1, 4),
            "num_attention_heads": st.sampled_from([1, 2, 4]),
            "vocab_size": st.integers(17, 90),
            "max_position_embeddings": st.integers(16, 64),
            "type_vocab_size": st.integers(1, 3),
            "hidden_act": st.sampled_from(["gelu", "relu", "gelu_new"]),
            "tie_word_embeddings": st.booleans(),
        }
    )


def distilbert() -> st.SearchStrategy[Config]:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("distilbert"),
            "dim": st.sampled_from([16, 32, 48]),
            "hidden_dim": st.integers(5, 90),
            "n_layers": st.integers(1, 4),
            "n_heads": st.sampled_from([1, 2, 4]),
            "vocab_size": st.integers(17, 90),
            "max_position_embeddings": st.integers(16, 64),
            "activation": st.sampled_from(["gelu", "relu"]),
            "tie_word_embeddings": st.booleans(),
        }
    )


def t5(model_type: str = "t5") -> st.SearchStrategy[Config]:
    return st.fixed_dictionaries(
        {
            "model_type": st.just(model_type),
            "decoder_start_token_id": st.just(0),
            "d_model": st.sampled_from([16, 32, 40]),
            "d_kv": st.sampled_from([4, 8, 16]),
            "d_ff": st.integers(5, 90),
            "num_layers": st.integers(1, 4),
            "num_decoder_layers": st.none() | st.integers(1, 4),
            "num_heads": st.integers(1, 4),
            "vocab_size": st.integers(17, 90),
            "relative_attention_num_buckets": st.sampled_from([8, 32]),
            "feed_forward_proj": st.sampled_from(["relu", "gated-gelu", "gated-silu"]),
            "tie_word_embeddings": st.booleans(),
        }
    )


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "bert": lambda: bert("bert"),
    "distilbert": distilbert,
    "roberta": lambda: bert("roberta"),
    "mt5": lambda: t5("mt5"),
    "t5": t5,
    "longt5": lambda: st.tuples(
        t5("longt5"), st.sampled_from(["local", "transient-global"]), st.integers(1, 4), st.integers(1, 3)
    ).map(
        lambda drawn: {
            **drawn[0],
            "encoder_attention_type": drawn[1],
            "local_radius": drawn[2],
            "global_block_size": drawn[3],
        }
    ),
    "switch_transformers": lambda: st.tuples(
        t5("switch_transformers"),
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(1, 3),
        st.booleans(),
        st.none() | st.integers(0, 2),
    ).map(
        lambda drawn: {
            **{
                key: value for key, value in drawn[0].items() if key not in ("feed_forward_proj", "tie_word_embeddings")
            },
            "num_sparse_encoder_layers": drawn[1],
            "num_sparse_decoder_layers": drawn[2],
            "num_experts": drawn[3],
            "router_bias": drawn[4],
            **({} if drawn[5] is None else {"encoder_sparse_step": drawn[5], "decoder_sparse_step": 2 - drawn[5]}),
        }
    ),
    "umt5": lambda: t5("umt5"),
}
