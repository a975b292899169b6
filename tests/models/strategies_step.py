"""Small configs of Step 3.7."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st


@st.composite
def text_config(draw: st.DrawFn) -> dict[str, Any]:
    groups, layers = draw(st.sampled_from([1, 2])), draw(st.integers(1, 3))
    types = st.sampled_from(["full_attention", "sliding_attention"])
    layer_types = draw(st.lists(types, min_size=layers, max_size=layers))
    share = draw(st.sampled_from([0.5, 1.0]))
    return {
        "vocab_size": draw(st.integers(17, 60)),
        "hidden_size": 8 * draw(st.integers(2, 4)),
        "intermediate_size": 8 * draw(st.integers(1, 4)),
        "num_hidden_layers": layers,
        "num_attention_heads": groups * draw(st.sampled_from([1, 2])),
        "num_sliding_attention_heads": draw(st.none() | st.sampled_from([groups, 3 * groups])),
        "num_key_value_heads": groups,
        "head_dim": draw(st.sampled_from([8, 16])),
        "num_experts_per_tok": draw(st.integers(1, 2)),
        "n_routed_experts": draw(st.integers(2, 4)),
        "num_local_experts": None,
        "moe_intermediate_size": 8 * draw(st.integers(1, 3)),
        "share_expert_dim": 8 * draw(st.integers(1, 3)),
        "sliding_window": 3,
        "layer_types": layer_types,
        "mlp_layer_types": draw(st.lists(st.sampled_from(["sparse", "dense"]), min_size=layers, max_size=layers)),
        "attention_bias": draw(st.booleans()),
        "mlp_bias": draw(st.booleans()),
        "swiglu_limits": draw(st.none() | st.just([0.0] * (layers - 1) + [7.0])),
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": share}
            for kind in ("full_attention", "sliding_attention")
        },
        "pad_token_id": 1,
    }


@st.composite
def step3p7(draw: st.DrawFn) -> dict[str, Any]:
    heads = draw(st.sampled_from([1, 2]))
    text = draw(text_config())
    text = {key: value for key, value in text.items() if value is not None}
    return {
        "model_type": "step3p7",
        "text_config": text,
        "vision_config": {
            "hidden_size": heads * draw(st.sampled_from([8, 16])),
            "num_attention_heads": heads,
            "num_hidden_layers": draw(st.integers(1, 2)),
            "image_size": draw(st.sampled_from([12, 17])),
            "patch_size": 4,
            "mlp_ratio": draw(st.sampled_from([2.0, 2.6])),
        },
        "projector_bias": draw(st.booleans()),
        "image_token_id": 1,
        "tie_word_embeddings": draw(st.booleans()),
    }


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[dict[str, Any]]]] = {"step3p7": step3p7}
