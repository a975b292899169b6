"""Small configs of the language models of Gemma 4 and Gemma 3n."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]
KINDS = ("sliding_attention", "full_attention")


@st.composite
def language_model(draw: st.DrawFn, model_type: str) -> Config:
    """Both kinds of layers, so that the last ones can share the keys of earlier ones of their kind."""
    groups = draw(st.sampled_from([1, 2]))
    heads = groups * draw(st.sampled_from([1, 2]))
    layers = draw(st.integers(4, 7))
    shared = draw(st.integers(0, layers - 2))
    types = [draw(st.sampled_from(KINDS)) for _ in range(layers)]
    types[0], types[1], types[-1] = *KINDS, KINDS[1]
    return {
        "model_type": model_type,
        "hidden_size": heads * draw(st.sampled_from([8, 16])),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": draw(st.sampled_from([8, 24])),
        "vocab_size": draw(st.integers(17, 90)),
        "attention_bias": draw(st.booleans()),
        "tie_word_embeddings": draw(st.booleans()),
        "layer_types": types,
        "num_kv_shared_layers": shared,
        "sliding_window": draw(st.sampled_from([4, 16])),
        "max_position_embeddings": 64,
    }


@st.composite
def gemma4(draw: st.DrawFn, model_type: str) -> Config:
    config: Config = {
        **draw(language_model(model_type)),
        "intermediate_size": draw(st.integers(1, 6)) * 8,
        "global_head_dim": draw(st.sampled_from([16, 32])),
        "num_global_key_value_heads": draw(st.none() | st.just(1)),
        "attention_k_eq_v": draw(st.booleans()),
        "use_double_wide_mlp": draw(st.booleans()),
        "final_logit_softcapping": draw(st.none() | st.just(30.0)),
    }
    if model_type == "gemma4_text":
        # The class cannot share keys without embeddings for each layer.
        widths = st.just(8) if config["num_kv_shared_layers"] else st.sampled_from([0, 8])
        config["hidden_size_per_layer_input"] = draw(widths)
        config["vocab_size_per_layer_input"] = config["vocab_size"]
        if draw(st.booleans()):
            sizes = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8}
            config.update(sizes)
    return config


@st.composite
def gemma3n(draw: st.DrawFn) -> Config:
    config = draw(language_model("gemma3n_text"))
    layers = config["num_hidden_layers"]
    widths = st.integers(1, 6).map(lambda n: 8 * n)
    shares = st.lists(st.sampled_from([0.0, 0.95]), min_size=layers, max_size=layers)
    return {
        **config,
        "intermediate_size": draw(widths | st.lists(widths, min_size=layers, max_size=layers)),
        "vocab_size_per_layer_input": draw(st.integers(5, config["vocab_size"])),
        "hidden_size_per_layer_input": draw(st.sampled_from([8, 16])),
        "altup_num_inputs": draw(st.sampled_from([2, 4])),
        "altup_coef_clip": draw(st.sampled_from([1.0, 120.0])),
        "altup_correct_scale": draw(st.booleans()),
        "laurel_rank": draw(st.sampled_from([2, 8])),
        "activation_sparsity_pattern": draw(st.none() | shares),
    }


@st.composite
def gemma3n_parts(draw: st.DrawFn) -> Config:
    """timm's encoder has one size; the conformer and all vocabularies have many."""
    text, heads, kernel = draw(gemma3n()), draw(st.sampled_from([1, 2])), st.sampled_from([[3, 3], [2, 4]])
    return {
        "model_type": "gemma3n",
        "text_config": text,
        "vision_config": {"vocab_size": draw(st.integers(2, 9)), "model_type": "gemma3n_vision"},
        "audio_config": {
            "model_type": "gemma3n_audio",
            "vocab_size": draw(st.integers(2, 9)),
            "hidden_size": heads * draw(st.sampled_from([8, 16])),
            "input_feat_size": draw(st.sampled_from([16, 31])),
            "conf_num_attention_heads": heads,
            "conf_num_hidden_layers": draw(st.integers(1, 2)),
            "conf_conv_kernel_size": draw(st.sampled_from([3, 5])),
            "sscp_conv_channel_size": [draw(st.integers(2, 8)), draw(st.integers(2, 8))],
            "sscp_conv_kernel_size": [draw(kernel), draw(kernel)],
            "sscp_conv_stride_size": [[2, 2], draw(st.sampled_from([[2, 2], [1, 3]]))],
        },
        "tie_word_embeddings": draw(st.booleans()),
    }


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "gemma3n": gemma3n_parts,
    "gemma3n_text": gemma3n,
    "gemma4_text": lambda: gemma4("gemma4_text"),
    "gemma4_unified_text": lambda: gemma4("gemma4_unified_text"),
}
