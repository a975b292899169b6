"""Small configs of decoders with layers of gated DeltaNet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from config_strategies import decoder
from hypothesis import strategies as st

Config = dict[str, Any]

KINDS = st.lists(st.sampled_from(["linear_attention", "full_attention"]), min_size=4, max_size=4)
EXPERTS: dict[str, st.SearchStrategy[Any]] = {
    "num_experts": st.sampled_from([4, 6]),
    "num_experts_per_tok": st.sampled_from([1, 2]),
    "moe_intermediate_size": st.sampled_from([8, 24]),
    "shared_expert_intermediate_size": st.sampled_from([8, 16]),
}


@st.composite
def qwen(draw: st.DrawFn, model_type: str, **switches: st.SearchStrategy[Any]) -> Config:
    """Sizes of both kinds of layers, and the family's own switches."""
    key_heads = draw(st.sampled_from([1, 2]))
    config = draw(
        decoder(
            model_type,
            head_dim=st.sampled_from([8, 16]),
            attention_bias=st.booleans(),
            linear_key_head_dim=st.sampled_from([4, 8]),
            linear_value_head_dim=st.sampled_from([4, 6]),
            linear_conv_kernel_dim=st.sampled_from([2, 4]),
            kinds=st.none() | KINDS,
            **switches,
        )
    )
    kinds, share = config.pop("kinds"), draw(st.sampled_from([0.25, 0.5, 1.0]))
    return config | {
        "layer_types": kinds and kinds[: config["num_hidden_layers"]],
        "linear_num_key_heads": key_heads,
        # Fake CUDA tensors give one head strides that real kernels do not.
        "linear_num_value_heads": draw(st.sampled_from([2, 4])),
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": share},
    }


@st.composite
def qwen3_5(draw: st.DrawFn, model_type: str, **switches: st.SearchStrategy[Any]) -> Config:
    """A text part beside a vision tower."""
    text = draw(qwen(f"{model_type}_text", **switches))
    heads = draw(st.sampled_from([1, 2]))
    vision = {
        "model_type": f"{model_type}_vision",
        "depth": draw(st.integers(1, 2)),
        "hidden_size": heads * 8,
        "num_heads": heads,
        "intermediate_size": draw(st.integers(5, 20)),
        "patch_size": draw(st.sampled_from([2, 4])),
        "temporal_patch_size": draw(st.sampled_from([1, 2])),
        "spatial_merge_size": draw(st.sampled_from([1, 2])),
        "num_position_embeddings": draw(st.sampled_from([4, 16])),
        "out_hidden_size": text["hidden_size"],
    }
    return {
        "model_type": model_type,
        "text_config": text,
        "vision_config": vision,
        "tie_word_embeddings": draw(st.booleans()),
    }


@st.composite
def qwen4_text(draw: st.DrawFn) -> Config:
    """Streams, an indexer in every attention layer, n-grams in some layers of linear attention."""
    config = draw(
        qwen(
            "qwen4_exp_text",
            norm_topk_prob=st.booleans(),
            hc_count=st.sampled_from([2, 3]),
            hc_lowrank=st.sampled_from([4, 6]),
            output_gate_type=st.sampled_from([None, "sigmoid"]),
            indexer_n_heads=st.integers(1, 2),
            indexer_head_dim=st.just(16),
            indexer_compress_ratio=st.sampled_from([1, 2]),
            ngram_size=st.integers(2, 3),
            heads_per_ngram=st.integers(1, 2),
            ngram_vocab_size_base=st.sampled_from([3, 20]),
            make_ngram_vocab_size_divisible_by=st.sampled_from([1, 8]),
            ple_conv_kernel_size=st.sampled_from([2, 3]),
            ple_embed_dim=st.sampled_from([None, 12]),
            **EXPERTS,
        )
    )
    config |= {"indexer_kv_heads": 1, "indexer_budget": 4, "eos_token_id": 2}
    del config["intermediate_size"]
    if config["hidden_size"] % 12:
        config["ple_embed_dim"] = 12
    period = enumerate(config["layer_types"] or ["linear_attention"] * min(config["num_hidden_layers"], 3))
    linear = [i + 1 for i, kind in period if kind == "linear_attention"]
    chosen = draw(st.lists(st.sampled_from(linear), unique=True, max_size=2)) if linear else []
    return config | {"ple_layer_ids": chosen}


@st.composite
def qwen4(draw: st.DrawFn) -> Config:
    return {**draw(qwen3_5("qwen4_exp")), "text_config": draw(qwen4_text())}


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "qwen3_next": lambda: qwen(
        "qwen3_next",
        norm_topk_prob=st.booleans(),
        decoder_sparse_step=st.sampled_from([1, 2]),
        mlp_only_layers=st.sampled_from([[], [0]]),
        **EXPERTS,
    ),
    "qwen3_5_text": lambda: qwen("qwen3_5_text"),
    "qwen3_5_moe_text": lambda: qwen("qwen3_5_moe_text", **EXPERTS),
    "qwen4_exp": qwen4,
    "qwen4_exp_text": qwen4_text,
    "qwen3_5": lambda: qwen3_5("qwen3_5"),
    "qwen3_5_moe": lambda: qwen3_5("qwen3_5_moe", **EXPERTS),
}
