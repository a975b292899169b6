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
        "kv_lora_rank": draw(st.integers(2, 8)) * 2,
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


@st.composite
def grouped_query(draw: st.DrawFn, model_type: str, **switches: st.SearchStrategy[Any]) -> Config:
    """Decoders with routed experts and grouped-query attention."""
    groups = draw(st.sampled_from([1, 2, 3]))
    heads = groups * draw(st.sampled_from([1, 2]))
    num_experts = draw(st.integers(1, 5))
    config: Config = {
        "model_type": model_type,
        "hidden_size": heads * draw(st.sampled_from([8, 16])),
        "intermediate_size": draw(st.integers(1, 5)) * 8,
        "num_hidden_layers": draw(st.integers(1, 4)),
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "vocab_size": draw(st.integers(17, 90)),
        "tie_word_embeddings": draw(st.booleans()),
        "max_position_embeddings": 64,
        "eos_token_id": 2,
        draw(st.sampled_from(["num_experts", "num_local_experts"])): num_experts,
        "num_experts_per_tok": draw(st.integers(1, num_experts)),
    }
    config.update({name: draw(strategy) for name, strategy in switches.items()})
    return config


_QWEN = {
    "moe_intermediate_size": st.integers(1, 5).map(lambda n: 8 * n),
    "decoder_sparse_step": st.integers(1, 2),
    "mlp_only_layers": st.lists(st.integers(0, 3), max_size=2),
    "norm_topk_prob": st.booleans(),
    "use_sliding_window": st.booleans(),
    "sliding_window": st.sampled_from([3, 16]),
}

STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "deepseek_v2": lambda: latent_attention("deepseek_v2"),
    "deepseek_v3": lambda: latent_attention("deepseek_v3"),
    "gpt_oss": lambda: grouped_query(
        "gpt_oss",
        head_dim=st.sampled_from([8, 24]),
        attention_bias=st.booleans(),
        sliding_window=st.sampled_from([3, 16]),
    ),
    "mixtral": lambda: grouped_query(
        "mixtral",
        head_dim=st.none() | st.sampled_from([8, 24]),
        sliding_window=st.none() | st.just(3),
        router_jitter_noise=st.sampled_from([0.0, 0.1]),
    ),
    "olmoe": lambda: grouped_query(
        "olmoe", attention_bias=st.booleans(), clip_qkv=st.none() | st.just(8.0), norm_topk_prob=st.booleans()
    ),
    "qwen2_moe": lambda: grouped_query(
        "qwen2_moe",
        **_QWEN,
        shared_expert_intermediate_size=st.integers(1, 5).map(lambda n: 8 * n),
        qkv_bias=st.booleans(),
        max_window_layers=st.integers(0, 4),
    ),
    "qwen3_moe": lambda: grouped_query(
        "qwen3_moe", **_QWEN, attention_bias=st.booleans(), head_dim=st.sampled_from([8, 24])
    ),
}
