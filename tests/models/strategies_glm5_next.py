"""Small configs of GLM 5.3 Flash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from vision_tables import COUNT, FLAG, frames

Config = dict[str, Any]
KINDS = st.sampled_from(["linear_attention", "indexed_attention", "full_attention"])


@st.composite
def glm5_next(draw: st.DrawFn) -> Config:
    """Both kinds of layers, with or without a bound of their decay, and groups of tokens that an indexer picks."""
    heads, layers = draw(st.sampled_from([1, 2])), draw(st.integers(1, 3))
    groups, size = draw(st.sampled_from([(1, 3), (2, 2)]))
    linear = {"linear_num_heads": draw(COUNT), "linear_head_dim": draw(st.sampled_from([8, 16])),
              "linear_conv_kernel_dim": draw(st.sampled_from([2, 4])),
              "linear_lower_bound": draw(st.sampled_from([-5.0, None]))}  # fmt: skip
    if draw(FLAG):
        nested = {"num_heads": 2, "head_dim": 8, "short_conv_kernel_size": 3, "gate_lower_bound": draw(
            st.sampled_from([-5.0, None])), "safe_gate": draw(FLAG)}  # fmt: skip
        linear = {"linear_attn_config": nested}
    text = {
        "model_type": "glm5_next_text", "vocab_size": draw(st.integers(17, 40)),
        "hidden_size": draw(st.sampled_from([16, 24])), "intermediate_size": draw(st.sampled_from([8, 20])),
        "moe_intermediate_size": draw(st.sampled_from([8, 16])), "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": heads, "n_shared_experts": draw(COUNT),
        "n_routed_experts": groups * size, "n_group": groups, "topk_group": draw(st.integers(1, groups)),
        "num_experts_per_tok": draw(st.integers(1, size)), "norm_topk_prob": draw(FLAG),
        "kv_lora_rank": draw(st.sampled_from([4, 8])), "q_lora_rank": draw(st.sampled_from([4, 8])),
        "qk_nope_head_dim": draw(st.sampled_from([8, 16])), "v_head_dim": draw(st.sampled_from([8, 16])),
        "attention_bias": draw(FLAG), "index_n_heads": draw(COUNT), "index_head_dim": draw(st.sampled_from([8, 16])),
        "index_topk": 4, "index_kpool": draw(st.sampled_from([1, 2, 4])), "hc_mult": draw(st.sampled_from([2, 4])),
        "index_kpool_always_select_tail": draw(FLAG), "hc_sinkhorn_iters": draw(st.integers(1, 3)),
        "layer_types": draw(st.none() | st.just([draw(KINDS) for _ in range(layers)])),
        "mlp_layer_types": [draw(st.sampled_from(["dense", "sparse"])) for _ in range(layers)],
        "pad_token_id": 0, "max_position_embeddings": 64, "tie_word_embeddings": draw(FLAG), **linear,
    }  # fmt: skip
    tower = draw(frames("glm5_next_vision", attention_bias=FLAG, projection_intermediate_size=st.sampled_from([8, 12])))
    return {"model_type": "glm5_next", "text_config": text, "vision_config": tower, "tie_word_embeddings": draw(FLAG)}


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {"glm5_next": glm5_next}
