"""Small configs of Dots 3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]
KINDS = st.sampled_from(["full_attention", "indexed_attention", "sliding_attention"])
EVEN = st.sampled_from([4, 8])


@st.composite
def dots3_text(draw: st.DrawFn) -> Config:
    layers, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2]))
    heads, swa_heads = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    own, turned = draw(EVEN), draw(EVEN)
    config: Config = {
        "model_type": "dots3_note_text",
        "vocab_size": draw(st.integers(17, 40)),
        "hidden_size": draw(st.sampled_from([16, 24])),
        "intermediate_size": draw(st.integers(5, 20)),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "kv_lora_rank": draw(EVEN),
        "q_lora_rank": draw(EVEN),
        "qk_nope_head_dim": own,
        "qk_rope_head_dim": turned,
        "head_dim": own + turned,
        "v_head_dim": draw(EVEN),
        "swa_num_attention_heads": swa_heads,
        "swa_num_key_value_heads": swa_heads,
        "swa_q_lora_rank": draw(EVEN),
        "swa_kv_lora_rank": draw(EVEN),
        "swa_head_dim": 12,
        "swa_qk_nope_head_dim": draw(EVEN),
        "swa_v_head_dim": draw(EVEN),
        "sliding_window": 4,
        "index_n_heads": draw(st.integers(1, 3)),
        "index_head_dim": 16,
        "index_topk": draw(st.sampled_from([2, 64])),
        "attention_bias": draw(st.booleans()),
        "attention_dropout": draw(st.sampled_from([0.0, 0.1])),
        "n_routed_experts": 4,
        "n_group": groups,
        "topk_group": draw(st.integers(1, groups)),
        "num_experts_per_tok": draw(st.integers(1, 2)),
        "norm_topk_prob": draw(st.booleans()),
        "moe_intermediate_size": 8,
        "n_shared_experts": draw(st.integers(1, 2)),
        "shared_experts_intermediate_size": draw(EVEN),
        "tie_word_embeddings": draw(st.booleans()),
        "first_k_dense_replace": draw(st.integers(0, 2)),
        "pad_token_id": 0,
    }
    if draw(st.booleans()):
        config["layer_types"] = draw(st.lists(KINDS, min_size=layers, max_size=layers))
        config["use_dsa"] = draw(st.booleans())
    return config


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {"dots3_note_text": dots3_text}
