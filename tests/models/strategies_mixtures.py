"""Small configs of grouped-query decoders with routed and shared experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]

FLAG = st.booleans()
HEAD_DIM = st.sampled_from([8, 16])
WIDTH = st.sampled_from([8, 24])
WINDOW = st.sampled_from([3, 16])
FEW = st.integers(0, 2)
SOME = st.integers(1, 2)
DROPOUT = st.sampled_from([0.0, 0.1])


@st.composite
def mixture(
    draw: st.DrawFn,
    model_type: str,
    count: str,
    chosen: str = "num_experts_per_tok",
    **switches: st.SearchStrategy[Any],
) -> Config:
    """Sizes that all of them have, experts in groups of at least two, and the family's own switches."""
    key_value_heads = draw(SOME)
    heads = key_value_heads * draw(SOME)
    groups = draw(SOME)
    chosen_groups = draw(st.integers(1, groups))
    size = draw(st.integers(2, 3))
    config: Config = {
        "model_type": model_type,
        "hidden_size": heads * draw(HEAD_DIM),
        "intermediate_size": draw(WIDTH),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
        "vocab_size": draw(st.integers(17, 40)),
        "tie_word_embeddings": draw(FLAG),
        "max_position_embeddings": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        count: groups * size,
        chosen: draw(st.integers(1, chosen_groups * size)),
    }
    if "n_group" in switches:
        config |= {"n_group": groups, "topk_group": chosen_groups}
        del switches["n_group"]
    config.update({name: draw(strategy) for name, strategy in switches.items()})
    return config


def with_layer_lists(strategy: st.SearchStrategy[Config], **choices: tuple[Any, ...]) -> st.SearchStrategy[Config]:
    """Adds lists with one of `choices` for each layer."""

    @st.composite
    def extended(draw: st.DrawFn) -> Config:
        config = draw(strategy)
        layers = config["num_hidden_layers"]
        lists = {
            name: draw(st.lists(st.sampled_from(c), min_size=layers, max_size=layers)) for name, c in choices.items()
        }
        return {**config, **lists}

    return extended()


TYPES = ("full_attention", "sliding_attention")
GROUPS = st.none()
DEEPSEEK = {"n_group": GROUPS, "norm_topk_prob": FLAG, "moe_intermediate_size": WIDTH}


def laguna() -> st.SearchStrategy[Config]:
    base = mixture(
        "laguna", "num_experts", attention_bias=FLAG, head_dim=HEAD_DIM, moe_intermediate_size=WIDTH,
        shared_expert_intermediate_size=WIDTH, gating=st.sampled_from([True, "per-head", "per-element"]),
        sliding_window=WINDOW, num_key_value_heads=st.just(1), moe_router_logit_softcapping=st.sampled_from([0.0, 5.0]),
    )  # fmt: skip
    return with_layer_lists(
        base, layer_types=TYPES, mlp_layer_types=("dense", "sparse"), num_attention_heads_per_layer=(1, 2, 4)
    )


def dbrx() -> st.SearchStrategy[Config]:
    """Every token goes to all experts: which ones it meets depends on the data."""

    @st.composite
    def config(draw: st.DrawFn) -> Config:
        groups, experts = draw(SOME), draw(st.integers(1, 3))
        heads = groups * draw(SOME)
        ffn = {
            "moe_num_experts": experts, "moe_top_k": experts, "ffn_hidden_size": draw(WIDTH), "moe_jitter_eps": None,
            "moe_normalize_expert_weights": draw(st.sampled_from([None, 1.0])), "ffn_act_fn": {"name": "silu"},
        }  # fmt: skip
        return {
            "model_type": "dbrx", "d_model": heads * draw(HEAD_DIM), "n_heads": heads, "n_layers": draw(SOME),
            "vocab_size": draw(st.integers(17, 40)), "max_seq_len": 64, "resid_pdrop": draw(DROPOUT),
            "emb_pdrop": draw(DROPOUT), "ffn_config": ffn,
            "attn_config": {"kv_n_heads": groups, "clip_qkv": 8.0, "rope_theta": 10_000.0, "attn_pdrop": draw(DROPOUT)},
        }  # fmt: skip

    return config()


def llama4() -> st.SearchStrategy[Config]:
    return mixture(
        "llama4_text", "num_local_experts", attention_bias=FLAG, head_dim=HEAD_DIM, intermediate_size_mlp=WIDTH,
        interleave_moe_layer_step=SOME, use_qk_norm=FLAG, attn_temperature_tuning=FLAG, no_rope_layer_interval=SOME,
        attention_chunk_size=WINDOW,
    )  # fmt: skip


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "afmoe": lambda: mixture(
        "afmoe", "num_experts", attention_bias=FLAG, head_dim=HEAD_DIM, moe_intermediate_size=WIDTH, mup_enabled=FLAG,
        num_dense_layers=FEW, num_shared_experts=SOME, global_attn_every_n_layers=SOME, sliding_window=WINDOW,
    ),
    "aria_text": lambda: mixture(
        "aria_text", "moe_num_experts", "moe_topk", attention_bias=FLAG, mlp_bias=FLAG, moe_num_shared_experts=SOME
    ),
    "cohere2_moe": lambda: mixture(
        "cohere2_moe", "num_experts", attention_bias=FLAG, head_dim=HEAD_DIM, norm_topk_prob=FLAG,
        expert_selection_fn=st.sampled_from(["softmax", "sigmoid"]), num_shared_experts=FEW,
        shared_expert_combination_strategy=st.sampled_from(["sum", "average"]), first_k_dense_replace=st.integers(0, 1),
        prefix_dense_intermediate_size=st.none() | WIDTH, prefix_dense_sliding_window_pattern=SOME,
        sliding_window=WINDOW, sliding_window_pattern=SOME, rms_norm_eps=st.none() | st.just(1e-6),
    ),
    "dbrx": dbrx,
    "dots1": lambda: mixture(
        "dots1", "n_routed_experts", **DEEPSEEK, attention_bias=FLAG, n_shared_experts=SOME, first_k_dense_replace=FEW,
        sliding_window=st.none() | WINDOW, max_window_layers=FEW,
    ),
    "ernie4_5_moe": lambda: mixture(
        "ernie4_5_moe", "moe_num_experts", "moe_k", use_bias=FLAG, moe_intermediate_size=WIDTH,
        moe_num_shared_experts=FEW, moe_layer_start_index=FEW, moe_layer_interval=SOME,
        moe_layer_end_index=st.integers(-1, 2),
    ),
    "exaone_moe": lambda: mixture(
        "exaone_moe", "num_experts", **DEEPSEEK, num_shared_experts=SOME, first_k_dense_replace=FEW,
        sliding_window=WINDOW, sliding_window_pattern=SOME,
    ),
    "flex_olmo": lambda: mixture("flex_olmo", "num_experts", attention_bias=FLAG, norm_topk_prob=FLAG),
    "glm4_moe": lambda: mixture(
        "glm4_moe", "n_routed_experts", **DEEPSEEK, attention_bias=FLAG, n_shared_experts=SOME, use_qk_norm=FLAG,
        first_k_dense_replace=FEW, head_dim=HEAD_DIM, partial_rotary_factor=st.sampled_from([0.5, 1.0]),
    ),
    "granitemoe": lambda: mixture("granitemoe", "num_local_experts", attention_bias=FLAG, attention_dropout=DROPOUT),
    "granitemoeshared": lambda: mixture(
        "granitemoeshared", "num_local_experts", attention_bias=FLAG, shared_intermediate_size=st.sampled_from([0, 8])
    ),
    "granitemoe_swa": lambda: with_layer_lists(
        mixture(
            "granitemoe_swa", "num_local_experts", attention_bias=FLAG, sliding_window=WINDOW,
            shared_intermediate_size=st.sampled_from([0, 8]), attention_dropout=DROPOUT,
        ),
        layer_types=TYPES, layer_rope_theta=(0, 10_000.0, 20_000.0),
    ),
    "hunyuan_v1_moe": lambda: mixture(
        "hunyuan_v1_moe", "num_experts", "moe_topk", attention_bias=FLAG, head_dim=HEAD_DIM
    ),
    "hy_v3": lambda: with_layer_lists(
        mixture(
            "hy_v3", "num_experts", attention_bias=FLAG, mlp_bias=FLAG, head_dim=HEAD_DIM, moe_intermediate_size=WIDTH,
            num_shared_experts=SOME, enable_moe_fp32_combine=FLAG,
        ),
        mlp_layer_types=("dense", "sparse"),
    ),
    "jetmoe": lambda: st.fixed_dictionaries(
        {
            "model_type": st.just("jetmoe"), "vocab_size": st.integers(17, 40),
            "hidden_size": st.sampled_from([16, 24]), "num_hidden_layers": SOME,
            "num_key_value_heads": SOME, "kv_channels": HEAD_DIM, "intermediate_size": WIDTH,
            "num_local_experts": st.integers(2, 3), "num_experts_per_tok": SOME, "tie_word_embeddings": FLAG,
            "attention_dropout": DROPOUT, "bos_token_id": st.just(1), "eos_token_id": st.just(2),
            "max_position_embeddings": st.just(64),
        }
    ),
    "laguna": laguna,
    "llama4_text": llama4,
    "mimo_v2_flash": lambda: with_layer_lists(
        mixture(
            "mimo_v2_flash", "n_routed_experts", **DEEPSEEK, attention_bias=FLAG, head_dim=HEAD_DIM,
            v_head_dim=HEAD_DIM, num_attention_heads=st.just(4), sliding_window=WINDOW,
            attention_value_scale=st.none() | st.just(0.7),
        ),
        layer_types=TYPES, mlp_layer_types=("dense", "sparse"),
    ),
    "minimax_m2": lambda: mixture(
        "minimax_m2", "num_local_experts", head_dim=HEAD_DIM, rotary_dim=st.sampled_from([4, 8]),
        router_jitter_noise=DROPOUT,
    ),
    "minimax_m3_vl_text": lambda: with_layer_lists(
        mixture(
            "minimax_m3_vl_text", "num_local_experts", head_dim=HEAD_DIM, dense_intermediate_size=WIDTH,
            shared_intermediate_size=WIDTH, index_n_heads=st.just(1), index_head_dim=st.just(8), rotary_dim=st.just(8),
            index_block_size=st.just(2), index_topk_blocks=SOME, index_local_blocks=SOME,
        ),
        layer_types=("full_attention", "minimax_m3_sparse"), mlp_layer_types=("dense", "sparse"),
    ),
    "phimoe": lambda: mixture(
        "phimoe", "num_local_experts", num_experts_per_tok=st.just(2), attention_bias=FLAG, lm_head_bias=FLAG,
        sliding_window=st.none() | WINDOW, input_jitter_noise=DROPOUT,
    ),
    "solar_open": lambda: mixture(
        "solar_open", "n_routed_experts", **DEEPSEEK, attention_bias=FLAG, n_shared_experts=SOME, head_dim=HEAD_DIM
    ),
}  # fmt: skip
