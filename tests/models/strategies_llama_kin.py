"""Small configs of the families that are Llama's decoder with switches, with full or alternating attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from strategies_variants import FLAG, HEAD_DIM, SHARE, WINDOW, decoder

Config = dict[str, Any]
Strategy = st.SearchStrategy[Config]


def internlm3() -> Strategy:
    """The class wants both biases or none."""
    both = st.booleans().map(lambda bias: {"attention_bias": bias, "mlp_bias": bias})
    return st.tuples(decoder("internlm3", head_dim=HEAD_DIM), both).map(lambda pair: {**pair[0], **pair[1]})


DROPOUT = st.sampled_from([0.0, 0.1])
REACHED = st.sampled_from([4, 32])
PATTERN = st.sampled_from([2, 4])


def compass() -> st.SearchStrategy[Config]:
    """The class wants rotary parameters, or none, for each kind of layer."""
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 1, 1]}
    kinds = ["full_attention", "sliding_attention"]
    base = decoder(
        "cohere_compass_text", attention_bias=FLAG, sliding_window=REACHED, attention_dropout=DROPOUT,
        layer_types=st.lists(st.sampled_from(kinds), min_size=6, max_size=6),
        rope_parameters=st.fixed_dictionaries({kind: st.sampled_from([rope, None]) for kind in kinds}),
    )  # fmt: skip
    return base.map(lambda config: config | {"layer_types": config["layer_types"][: config["num_hidden_layers"]]})


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "apertus1p5_text": lambda: decoder(
        "apertus1p5_text",
        attention_bias=FLAG,
        output_vocab_size=st.sampled_from([None, 16]),
        tie_word_embeddings=st.just(False),
        hidden_act=st.sampled_from(["xielu", "silu"]),
    ),
    "apertus": lambda: decoder("apertus", attention_bias=FLAG, hidden_act=st.sampled_from(["xielu", "silu"])),
    "arcee": lambda: decoder("arcee", attention_bias=FLAG, mlp_bias=FLAG, head_dim=st.none() | HEAD_DIM),
    "bitnet": lambda: decoder("bitnet", attention_bias=FLAG),
    "cohere2": lambda: decoder("cohere2", attention_bias=FLAG, sliding_window=REACHED, sliding_window_pattern=PATTERN),
    "cohere_compass_text": compass,
    "cwm": lambda: decoder("cwm", mlp_bias=FLAG, head_dim=HEAD_DIM, sliding_window=REACHED),
    "ernie4_5": lambda: decoder("ernie4_5", use_bias=FLAG, head_dim=st.none() | HEAD_DIM),
    "exaone4": lambda: decoder("exaone4", sliding_window=REACHED, sliding_window_pattern=PATTERN),
    "hunyuan_v1_dense": lambda: decoder("hunyuan_v1_dense", attention_bias=FLAG, head_dim=HEAD_DIM),
    "hyperclovax": lambda: decoder(
        "hyperclovax", attention_bias=FLAG, mlp_bias=FLAG, use_post_norm=FLAG, head_dim=st.none() | HEAD_DIM
    ),
    "internlm3": internlm3,
    "iquestcoder": lambda: decoder("iquestcoder", attention_bias=FLAG, mlp_bias=FLAG, head_dim=HEAD_DIM),
    "jais2": lambda: decoder("jais2", attention_bias=FLAG, mlp_bias=FLAG),
    "ministral": lambda: decoder("ministral", head_dim=HEAD_DIM, sliding_window=REACHED),
    "ministral3": lambda: decoder("ministral3", head_dim=HEAD_DIM, sliding_window=WINDOW),
    "nanochat": lambda: decoder(
        "nanochat", attention_bias=FLAG, final_logit_softcapping=st.none() | st.just(15.0), attention_dropout=DROPOUT
    ),
    "olmo3": lambda: decoder("olmo3", attention_bias=FLAG, sliding_window=REACHED),
    "persimmon": lambda: decoder(
        "persimmon", qk_layernorm=FLAG, partial_rotary_factor=SHARE, hidden_dropout=DROPOUT, attention_dropout=DROPOUT
    ),
    "seed_oss": lambda: decoder(
        "seed_oss",
        attention_bias=FLAG,
        attention_out_bias=FLAG,
        mlp_bias=FLAG,
        head_dim=HEAD_DIM,
        residual_dropout=DROPOUT,
    ),
}
