"""Small configs of the Gemma family, with and without a vision tower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]


@st.composite
def language_model(draw: st.DrawFn, model_type: str) -> Config:
    groups = draw(st.sampled_from([1, 2, 3]))
    heads = groups * draw(st.sampled_from([1, 2]))
    config: Config = {
        "model_type": model_type,
        "hidden_size": heads * draw(st.sampled_from([8, 16])),
        "intermediate_size": draw(st.integers(5, 60)),
        "num_hidden_layers": draw(st.integers(1, 7)),
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": draw(st.sampled_from([8, 24])),
        "vocab_size": draw(st.integers(17, 90)),
        "attention_bias": draw(st.booleans()),
        "tie_word_embeddings": draw(st.booleans()),
    }
    if model_type != "gemma":
        config["sliding_window"] = draw(st.sampled_from([4, 16]))
        config["final_logit_softcapping"] = draw(st.none() | st.just(30.0))
        config["attn_logit_softcapping"] = draw(st.none() | st.just(50.0))
    return config


@st.composite
def with_vision(draw: st.DrawFn) -> Config:
    heads = draw(st.sampled_from([1, 2, 4]))
    vision = {
        "model_type": "siglip_vision_model",
        "hidden_size": heads * draw(st.sampled_from([8, 16])),
        "intermediate_size": draw(st.integers(5, 60)),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": heads,
        "image_size": draw(st.sampled_from([32, 45])),
        "patch_size": draw(st.sampled_from([4, 8])),
        "vision_use_head": draw(st.booleans()),
    }
    return {
        "model_type": "gemma3",
        "text_config": draw(language_model("gemma3_text")),
        "vision_config": vision,
        "mm_tokens_per_image": 4,
        "tie_word_embeddings": draw(st.booleans()),
    }


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "gemma": lambda: language_model("gemma"),
    "gemma2": lambda: language_model("gemma2"),
    "gemma3": with_vision,
    "gemma3_text": lambda: language_model("gemma3_text"),
}
