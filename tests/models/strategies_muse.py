"""Small configs of Muse Glimmer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st


@st.composite
def muse_glimmer(draw: st.DrawFn) -> dict[str, Any]:
    groups, layers, eyes = draw(st.sampled_from([1, 2])), draw(st.integers(1, 5)), draw(st.sampled_from([1, 2]))
    heads = groups * draw(st.sampled_from([1, 2]))
    width = eyes * draw(st.sampled_from([8, 16]))
    text: dict[str, Any] = {
        "vocab_size": draw(st.integers(17, 60)),
        "hidden_size": heads * 8 * draw(st.integers(1, 3)),
        "intermediate_size": draw(st.integers(5, 40)),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": draw(st.sampled_from([8, 16])),
        "sliding_window": 3,
        "attention_bias": draw(st.booleans()),
        "attention_dropout": draw(st.sampled_from([0.0, 0.1])),
        "eos_token_id": 1,
        "bos_token_id": 0,
    }
    if draw(st.booleans()):
        text["layer_types"] = draw(
            st.lists(st.sampled_from(["full_attention", "sliding_attention"]), min_size=layers, max_size=layers)
        )
        text["layer_rope_theta"] = draw(st.lists(st.sampled_from([0, 10_000.0]), min_size=layers, max_size=layers))
    return {
        "model_type": "muse_glimmer",
        "text_config": text,
        "vision_config": {
            "hidden_size": width,
            "intermediate_size": draw(st.integers(5, 40)),
            "num_attention_heads": eyes,
            "num_hidden_layers": draw(st.integers(1, 2)),
            "patch_size": draw(st.sampled_from([2, 4])),
            "patch_temporal": draw(st.sampled_from([1, 2])),
            "pos_emb_height": draw(st.integers(2, 6)),
            "pos_emb_width": draw(st.integers(2, 6)),
        },
        "out_hidden_size": 4 * width,
        "projector_hidden_size": draw(st.integers(4, 24)),
        "image_token_id": 1,
        "video_token_id": 2,
        "tie_word_embeddings": draw(st.booleans()),
    }


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[dict[str, Any]]]] = {"muse_glimmer": muse_glimmer}
