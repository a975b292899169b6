"""Small configs of Kimi K2.5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from strategies_sparse import latent_attention


@st.composite
def kimi_k25(draw: st.DrawFn) -> dict[str, Any]:
    heads = draw(st.sampled_from([1, 2]))
    rows, columns = draw(st.sampled_from([(1, 2), (2, 2)]))
    width = heads * draw(st.sampled_from([8, 16]))
    text = draw(latent_attention("deepseek_v3"))
    text["model_type"] = draw(st.sampled_from(["deepseek_v3", "kimi_k2"]))
    return {
        "model_type": "kimi_k25",
        "text_config": text,
        "vision_config": {
            "hidden_size": width,
            "intermediate_size": draw(st.integers(5, 40)),
            "num_attention_heads": heads,
            "num_hidden_layers": draw(st.integers(1, 2)),
            "patch_size": draw(st.sampled_from([4, 7])),
            "pos_emb_height": draw(st.integers(2, 6)),
            "pos_emb_width": draw(st.integers(2, 6)),
            "merge_kernel_size": [rows, columns],
        },
        "projection_hidden_size": width,
        "image_token_id": 1,
        "video_token_id": 2,
        "tie_word_embeddings": draw(st.booleans()),
    }


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[dict[str, Any]]]] = {"kimi_k25": kimi_k25}
