"""Small configs of decoders with recurrent layers other than Mamba's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from config_strategies import decoder
from hypothesis import strategies as st

Config = dict[str, Any]
Switch = st.SearchStrategy[Any]

FLAG = st.booleans()
KINDS = ["linear_attention", "full_attention"]
NO_PADDING = {"pad_token_id": st.none()}  # the classes' own lie beyond a small vocabulary
LATENT: dict[str, Switch] = {
    **NO_PADDING,
    "attention_bias": FLAG,
    "moe_intermediate_size": st.sampled_from([8, 24]),
    "num_local_experts": st.just(8),
    "num_experts_per_tok": st.sampled_from([1, 2]),
    "n_shared_experts": st.sampled_from([1, 2]),
    "n_group": st.sampled_from([1, 2]),
    "topk_group": st.just(1),
    "kv_lora_rank": st.sampled_from([8, 16]),
    "qk_rope_head_dim": st.sampled_from([4, 8]),
    "qk_nope_head_dim": st.sampled_from([4, 8]),
    "v_head_dim": st.sampled_from([4, 8]),
    "norm_topk_prob": FLAG,
}


@st.composite
def with_kinds(draw: st.DrawFn, model_type: str, **switches: Switch) -> Config:
    config = draw(decoder(model_type, **switches))
    layers = config["num_hidden_layers"]
    kinds = draw(st.none() | st.lists(st.sampled_from(KINDS), min_size=layers, max_size=layers))
    if "kv_lora_rank" in switches:  # latent attention has a key for every query head
        config["num_key_value_heads"] = config["num_attention_heads"]
    return config | {"layer_types": kinds}


@st.composite
def kimi_linear(draw: st.DrawFn) -> Config:
    switches = {**LATENT, "linear_head_dim": st.sampled_from([4, 8]), "linear_num_heads": st.sampled_from([1, 3])}
    config = draw(with_kinds("kimi_linear", q_lora_rank=st.sampled_from([None, 8]), **switches))
    own = {"head_dim": 4, "num_heads": 2, "short_conv_kernel_size": 2, "full_attn_layers": [1],
           "kda_layers": list(range(2, config["num_hidden_layers"] + 1))}  # fmt: skip
    nested = draw(st.sampled_from([{}, own]))
    return config | {"linear_attn_config": nested, "first_k_dense_replace": draw(st.integers(0, 2))}


@st.composite
def olmo_hybrid(draw: st.DrawFn) -> Config:
    config = draw(decoder("olmo_hybrid", attention_bias=FLAG, **NO_PADDING))
    heads = draw(st.sampled_from([None, 2]))
    sizes = {"linear_num_key_heads": heads, "linear_num_value_heads": heads and 2 * heads}
    sizes |= {"linear_key_head_dim": draw(st.sampled_from([None, 4])), "linear_value_head_dim": draw(
        st.sampled_from([None, 6]))}  # fmt: skip
    kinds = KINDS + [draw(st.sampled_from(KINDS)) for _ in range(draw(st.integers(0, 2)))]
    return config | sizes | {"layer_types": kinds, "num_hidden_layers": len(kinds)}


@st.composite
def recurrent_gemma(draw: st.DrawFn) -> Config:
    config = draw(decoder("recurrent_gemma", attention_bias=FLAG, conv1d_width=st.sampled_from([2, 4])))
    width = draw(st.sampled_from([None, config["num_attention_heads"] * 4]))
    kinds = st.lists(st.sampled_from(["recurrent", "attention"]), min_size=1, max_size=3)
    return config | {"lru_width": width, "block_types": draw(kinds)}


def rwkv() -> st.SearchStrategy[Config]:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("rwkv"),
            "hidden_size": st.sampled_from([8, 24]),
            "num_hidden_layers": st.integers(2, 3),  # its initialization divides by one less
            "attention_hidden_size": st.sampled_from([None, 8, 24]),
            "intermediate_size": st.sampled_from([None, 20]),
            "vocab_size": st.integers(17, 90),
            "tie_word_embeddings": FLAG,
        }
    )


def xlstm() -> st.SearchStrategy[Config]:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("xlstm"),
            "hidden_size": st.sampled_from([64, 128]),
            "num_hidden_layers": st.integers(1, 3),
            "num_heads": st.sampled_from([1, 2, 4]),
            "use_bias": FLAG,
            "qk_dim_factor": st.sampled_from([0.5, 0.75, 1.0]),
            "ffn_proj_factor": st.sampled_from([1.3, 2.667]),
            "ffn_round_up_to_multiple_of": st.sampled_from([8, 64]),
            "weight_mode": st.sampled_from(["single", "fused"]),
            "chunk_size": st.sampled_from([2, 4, 64]),
            "norm_reduction_force_float32": FLAG,
            "inference_state_dtype": st.sampled_from(["float32", "bfloat16"]),
            "vocab_size": st.integers(17, 90),
            "tie_word_embeddings": FLAG,
        }
    )


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "bailing_hybrid": lambda: with_kinds(
        "bailing_hybrid",
        head_dim=st.sampled_from([4, 8]),
        short_conv_kernel_size=st.sampled_from([2, 4]),
        layer_group_size=st.integers(1, 3),
        kda_safe_gate=FLAG,
        first_k_dense_replace=st.integers(0, 2),
        **LATENT,
    ),
    "kimi_linear": kimi_linear,
    "minimax": lambda: with_kinds(
        "minimax",
        head_dim=st.none() | st.sampled_from([8, 24]),
        num_local_experts=st.sampled_from([2, 4]),
        sliding_window=st.none() | st.just(16),
        intermediate_size=st.sampled_from([8, 24]),
        block_size=st.sampled_from([3, 256]),
        router_jitter_noise=st.sampled_from([0.0, 0.1]),
    ),
    "olmo_hybrid": olmo_hybrid,
    "recurrent_gemma": recurrent_gemma,
    "rwkv": rwkv,
    "xlstm": xlstm,
}
