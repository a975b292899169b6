"""Small configs of XLM, XLNet, CPM-Ant and ProphetNet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Strategy = st.SearchStrategy[dict[str, Any]]

COUNT, FLAG, VOCABULARY = st.integers(1, 3), st.booleans(), st.integers(17, 60)
WIDTH, HEADS, INNER = st.sampled_from([16, 32]), st.sampled_from([1, 2, 4]), st.integers(5, 40)


def xlm() -> Strategy:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("xlm"), "emb_dim": WIDTH, "n_layers": COUNT, "n_heads": HEADS, "causal": FLAG,
            "vocab_size": VOCABULARY, "max_position_embeddings": st.just(16), "n_langs": COUNT, "use_lang_emb": FLAG,
            "gelu_activation": FLAG, "tie_word_embeddings": FLAG, "dropout": st.sampled_from([0.0, 0.1]),
        }
    )  # fmt: skip


def xlnet() -> Strategy:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("xlnet"), "d_model": WIDTH, "n_layer": COUNT, "n_head": HEADS, "d_inner": INNER,
            "vocab_size": VOCABULARY, "tie_word_embeddings": FLAG,
        }
    )  # fmt: skip


def cpmant() -> Strategy:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("cpmant"), "hidden_size": WIDTH, "num_attention_heads": HEADS, "dim_ff": INNER,
            "dim_head": st.sampled_from([4, 8]), "num_hidden_layers": COUNT, "vocab_size": VOCABULARY,
            "position_bias_num_buckets": st.just(8), "prompt_types": st.integers(3, 4), "prompt_length": COUNT,
            "segment_types": st.integers(3, 4),
        }
    )  # fmt: skip


@st.composite
def prophetnet(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["ForCausalLM", "ForConditionalGeneration"]))
    return {
        "model_type": "prophetnet", "architectures": [f"ProphetNet{kind}"], "hidden_size": draw(WIDTH),
        "vocab_size": draw(VOCABULARY), "num_encoder_layers": draw(COUNT), "num_decoder_layers": draw(COUNT),
        "num_encoder_attention_heads": draw(HEADS), "num_decoder_attention_heads": draw(HEADS),
        "encoder_ffn_dim": draw(INNER), "decoder_ffn_dim": draw(INNER), "ngram": draw(COUNT), "num_buckets": 8,
        "max_position_embeddings": 16, "tie_word_embeddings": draw(FLAG), "decoder_start_token_id": 0,
        "eps": draw(st.sampled_from([0.0, 0.1])), "attention_dropout": draw(st.sampled_from([0.0, 0.1])),
    }  # fmt: skip


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "cpmant": cpmant,
    "prophetnet": prophetnet,
    "xlm": xlm,
    "xlnet": xlnet,
}
