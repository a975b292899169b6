"""Small configs of the mixture-of-experts families."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]


@st.composite
def latent_attention(draw: st.DrawFn, model_type: str) -> Config:
    """DeepSeek: sizes of the compressed attention, dense layers first, groups of experts."""
    heads = draw(st.sampled_from([1, 2, 4]))
    groups = draw(st.sampled_from([1, 2, 4]))
    group_size = draw(st.sampled_from([2, 3]))
    chosen_groups = draw(st.integers(1, groups))
    config: Config = {
        "model_type": model_type,
        "hidden_size": heads * draw(st.sampled_from([8, 16])),
        "intermediate_size": draw(st.integers(5, 40)) * 2,
        "num_hidden_layers": draw(st.integers(1, 4)),
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "vocab_size": draw(st.integers(17, 90)),
        "tie_word_embeddings": draw(st.booleans()),
        "max_position_embeddings": 64,
        "q_lora_rank": draw(st.none() | st.integers(4, 16)),
        "kv_lora_rank": draw(st.integers(4, 16)),
        "qk_nope_head_dim": draw(st.sampled_from([8, 12])),
        "qk_rope_head_dim": draw(st.sampled_from([4, 8])),
        "v_head_dim": draw(st.sampled_from([8, 16])),
        "attention_bias": draw(st.booleans()),
        "moe_intermediate_size": draw(st.integers(1, 5)) * 8,
        "first_k_dense_replace": draw(st.integers(0, 3)),
        "n_routed_experts": groups * group_size,
        "n_shared_experts": draw(st.integers(1, 3)),
        "num_experts_per_tok": draw(st.integers(1, chosen_groups * group_size)),
        "n_group": groups,
        "topk_group": chosen_groups,
        "norm_topk_prob": draw(st.booleans()),
    }
    if model_type == "deepseek_v2":
        config["mlp_bias"] = draw(st.booleans())
        config["topk_method"] = draw(st.sampled_from(["greedy", "group_limited_greedy"]))
    else:
        config["rope_interleave"] = draw(st.booleans())
    return config


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "deepseek_v2": lambda: latent_attention("deepseek_v2"),
    "deepseek_v3": lambda: latent_attention("deepseek_v3"),
}
