"""Small configs of Dots 3 and Hunyuan 4."""

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


@st.composite
def dots3(draw: st.DrawFn) -> Config:
    """With towers for images and sound."""
    text = draw(dots3_text())
    heads, ears, width = draw(st.integers(1, 2)), draw(st.integers(1, 2)), text["hidden_size"]
    vision: Config = {
        "hidden_size": heads * 16,
        "adapter_in_dim": heads * 16,
        "adapter_out_dim": width,
        "num_attention_heads": heads,
        "num_hidden_layers": 2,
        "intermediate_size": draw(st.integers(5, 20)),
        "moe_intermediate_size": draw(EVEN),
        "patch_size": draw(st.sampled_from([2, 4])),
        "attention_bias": draw(st.booleans()),
        "num_experts_per_tok": 2,
    }
    if draw(st.booleans()):
        vision["pyramid_num_routed"] = draw(st.sampled_from([[-1, 4], [2, 3]]))
    else:
        vision |= {
            "mlp_layer_types": draw(st.sampled_from([["dense", "sparse"], ["sparse"] * 2])),
            "num_local_experts": 3,
        }
    audio: Config = {
        "hidden_size": ears * 16,
        "adapter_input_size": ears * 16,
        "adapter_out_dim": width,
        "num_attention_heads": ears,
        "num_hidden_layers": 1,
        "intermediate_size": draw(st.integers(5, 20)),
        "downsample_hidden_size": draw(EVEN),
        "feature_size": draw(st.integers(5, 20)),
        "attention_bias": draw(st.booleans()),
    }
    tied = draw(st.booleans())
    parts = {"text_config": text, "vision_config": vision, "audio_config": audio}
    return {"model_type": "dots3_note", **parts, "tie_word_embeddings": tied}


@st.composite
def hy_v4(draw: st.DrawFn) -> Config:
    layers, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2]))
    config: Config = {
        "model_type": "hy_v4",
        "vocab_size": draw(st.integers(17, 40)),
        "hidden_size": draw(st.sampled_from([16, 24])),
        "intermediate_size": draw(st.integers(5, 20)),
        "num_hidden_layers": layers,
        "num_attention_heads": draw(st.integers(1, 3)),
        "kv_lora_rank": draw(EVEN),
        "q_lora_rank": draw(EVEN),
        "qk_nope_head_dim": draw(EVEN),
        "qk_rope_head_dim": draw(EVEN),
        "v_head_dim": draw(EVEN),
        "index_n_heads": draw(st.integers(1, 3)),
        "index_head_dim": 16,
        "index_topk": draw(st.sampled_from([2, 64])),
        "hc_mult": draw(st.integers(2, 3)),
        "attention_bias": draw(st.booleans()),
        "attention_dropout": draw(st.sampled_from([0.0, 0.1])),
        "n_routed_experts": 4,
        "n_group": groups,
        "topk_group": draw(st.integers(1, groups)),
        "num_experts_per_tok": draw(st.integers(1, 2)),
        "norm_topk_prob": draw(st.booleans()),
        "moe_intermediate_size": 8,
        "n_shared_experts": draw(st.integers(1, 2)),
        "tie_word_embeddings": draw(st.booleans()),
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if draw(st.booleans()):
        config["indexer_types"] = ["full", *draw(st.lists(st.sampled_from(["full", "shared"]), min_size=2, max_size=2))]
        config["indexer_types"] = config["indexer_types"][:layers]
    return config


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "dots3_note": dots3,
    "dots3_note_text": dots3_text,
    "hy_v4": hy_v4,
}
