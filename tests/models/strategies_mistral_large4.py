"""Small configs of Mistral Large 4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from vision_tables import COUNT, FLAG, LISTED, vision, whole

Config = dict[str, Any]
INDEXED = st.sampled_from(["full", "shared"])


@st.composite
def text(draw: st.DrawFn) -> Config:
    """Turned and unturned layers, some of which read the latents of the layer before, two of them after one."""
    heads, turned, groups = draw(COUNT), draw(st.lists(FLAG, min_size=1, max_size=3)), draw(COUNT)
    layers, sources = list[int](), list[int]()
    for turns in turned:  # the class keeps one source of each kind, so that those that share follow theirs
        followers = draw(st.integers(0, 2)) if len(layers) < 3 else 0
        sources += [len(layers)] * (1 + followers)
        layers += [int(turns)] * (1 + followers)
    count = len(layers)
    return {
        "model_type": "mistral_large4_text", "vocab_size": draw(st.integers(17, 40)),
        "hidden_size": draw(st.sampled_from([16, 24])), "intermediate_size": draw(st.sampled_from([8, 20])),
        "moe_intermediate_size": draw(st.sampled_from([8, 16])), "num_hidden_layers": count,
        "num_attention_heads": heads, "num_key_value_heads": heads, "kv_lora_rank": draw(st.sampled_from([4, 8])),
        "qk_nope_head_dim": draw(st.sampled_from([8, 12])), "qk_rope_head_dim": draw(st.sampled_from([4, 8])),
        "v_head_dim": draw(st.sampled_from([8, 16])), "attention_bias": draw(FLAG),
        "n_routed_experts": 3 * groups, "n_shared_experts": draw(COUNT), "num_experts_per_tok": draw(COUNT),
        "n_group": groups, "topk_group": draw(st.integers(1, groups)), "index_topk": 4, "index_n_heads": draw(COUNT),
        "index_head_dim": draw(st.sampled_from([8, 16])), "no_rope_layers": layers,
        "kv_source_layers": sources if draw(FLAG) else None,
        "indexer_types": ["full", *(draw(INDEXED) for _ in range(count - 1))],
        "mlp_layer_types": [draw(st.sampled_from(["dense", "sparse"])) for _ in range(count)],
        "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "mistral_large4": lambda: whole(
        "mistral_large4", text(), vision("pixtral"), vision_feature_layer=LISTED, multimodal_projector_bias=FLAG,
        spatial_merge_size=COUNT, tie_word_embeddings=FLAG,
    )
}  # fmt: skip
