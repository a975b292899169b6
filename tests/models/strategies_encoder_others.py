"""Small configs of encoders of other shapes than BERT's, and of early decoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from config_strategies import decoder
from hypothesis import strategies as st

Config = dict[str, Any]
Strategy = st.SearchStrategy[Config]

COUNT, FLAG, VOCABULARY = st.integers(1, 3), st.booleans(), st.integers(17, 60)
WIDTH, HEADS, INNER = st.sampled_from([16, 32]), st.sampled_from([1, 2, 4]), st.integers(5, 40)
FUNCTION, CHANCE = st.sampled_from(["gelu", "relu", "gelu_new"]), st.sampled_from([0.0, 0.1])


def like_bert(model_type: str, **switches: st.SearchStrategy[Any]) -> Strategy:
    return st.fixed_dictionaries(
        {
            "model_type": st.just(model_type), "hidden_size": WIDTH, "intermediate_size": INNER,
            "num_hidden_layers": COUNT, "num_attention_heads": HEADS, "vocab_size": VOCABULARY,
            "max_position_embeddings": st.integers(16, 40), "hidden_act": FUNCTION, "tie_word_embeddings": FLAG,
            "hidden_dropout_prob": CHANCE, "attention_probs_dropout_prob": CHANCE, **switches,
        }
    )  # fmt: skip


def albert() -> Strategy:
    return like_bert(
        "albert", embedding_size=st.sampled_from([8, 16]), type_vocab_size=COUNT, inner_group_num=st.integers(1, 2),
        num_hidden_layers=st.integers(2, 4), num_hidden_groups=st.integers(1, 2),
    )  # fmt: skip


def deberta(model_type: str) -> Strategy:
    later: dict[str, st.SearchStrategy[Any]] = {
        "position_buckets": st.sampled_from([-1, 6]), "norm_rel_ebd": st.sampled_from(["none", "layer_norm"]),
        "share_att_key": FLAG, "conv_kernel_size": st.sampled_from([0, 3]), "conv_groups": st.just(1),
    }  # fmt: skip
    return like_bert(
        model_type, relative_attention=FLAG, max_relative_positions=st.sampled_from([-1, 7]),
        pos_att_type=st.sampled_from([None, "c2p", "c2p|p2c", "p2c"]), position_biased_input=FLAG, legacy=FLAG,
        type_vocab_size=st.integers(0, 2), **(later if model_type == "deberta-v2" else {}),
    )  # fmt: skip


def modernbert(model_type: str) -> Strategy:
    return st.fixed_dictionaries(
        {
            "model_type": st.just(model_type), "hidden_size": WIDTH, "intermediate_size": INNER,
            "num_hidden_layers": st.integers(1, 4), "num_attention_heads": HEADS, "vocab_size": VOCABULARY,
            "hidden_activation": FUNCTION, "tie_word_embeddings": FLAG, "norm_bias": FLAG, "attention_bias": FLAG,
            "mlp_bias": FLAG, "decoder_bias": FLAG, "classifier_bias": FLAG, "attention_dropout": CHANCE,
            "mlp_dropout": CHANCE, "embedding_dropout": CHANCE, "local_attention": st.sampled_from([4, 8, 128]),
            "pad_token_id": st.just(0), "bos_token_id": st.just(1), "eos_token_id": st.just(2),
            "cls_token_id": st.just(1), "sep_token_id": st.just(2),
        }
    )  # fmt: skip


def ctrl() -> Strategy:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("ctrl"), "n_embd": WIDTH, "n_layer": COUNT, "n_head": HEADS, "dff": INNER,
            "vocab_size": VOCABULARY, "n_positions": st.just(16), "tie_word_embeddings": FLAG, "resid_pdrop": CHANCE,
            "embd_pdrop": CHANCE,
        }
    )  # fmt: skip


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "albert": albert,
    "ctrl": ctrl,
    "deberta": lambda: deberta("deberta"),
    "deberta-v2": lambda: deberta("deberta-v2"),
    "gte": lambda: like_bert("gte", type_vocab_size=st.integers(0, 2)),
    "jina_embeddings_v3": lambda: like_bert("jina_embeddings_v3", type_vocab_size=COUNT),
    "nomic_bert": lambda: like_bert("nomic_bert", type_vocab_size=COUNT, head_dim=st.none() | st.sampled_from([8, 24])),
    "eurobert": lambda: decoder(
        "eurobert",
        attention_bias=FLAG,
        mlp_bias=FLAG,
        head_dim=st.none() | st.sampled_from([8, 24]),
        pad_token_id=st.none(),
    ),
    "modernbert": lambda: modernbert("modernbert"),
    "modernbert-decoder": lambda: modernbert("modernbert-decoder"),
    "mpnet": lambda: like_bert("mpnet", relative_attention_num_buckets=st.sampled_from([32, 40])),
}
