"""Small configs of decoders with latent attention beside DeepSeek V2 and V3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from strategies_sparse import latent_attention

Config = dict[str, Any]

FLAG = st.booleans()


@st.composite
def latent(draw: st.DrawFn, model_type: str, *, rank: bool = False, groups: bool = True, **switches: Any) -> Config:
    """As DeepSeek V3, with a list of dense and sparse layers; `rank`: queries are always compressed."""
    config = draw(latent_attention(model_type))
    # Their routers look at the two best of a group.
    config["num_hidden_layers"] = min(config["num_hidden_layers"], 3)
    if rank and config["q_lora_rank"] is None:
        config["q_lora_rank"] = 8
    if draw(FLAG):
        kinds = st.sampled_from(["dense", "sparse"])
        config["mlp_layer_types"] = [draw(kinds) for _ in range(config["num_hidden_layers"])]
    config |= {"bos_token_id": 1, "eos_token_id": 2}
    if not groups and draw(FLAG):
        config["n_group"] = config["topk_group"] = None
    config.update({name: draw(strategy) for name, strategy in switches.items()})
    return config


INDEXER = {"index_n_heads": st.integers(1, 2), "index_head_dim": st.sampled_from([8, 16]), "index_topk": st.just(4)}


def youtu() -> st.SearchStrategy[Config]:
    keys = ("moe_", "first_k", "n_", "num_experts", "topk_group", "norm_topk", "mlp_layer")
    return latent("youtu").map(lambda config: {key: value for key, value in config.items() if not key.startswith(keys)})


@st.composite
def deepseek_v4(draw: st.DrawFn) -> Config:
    """Streams, rates of compression, groups of the output product."""
    heads, layers = draw(st.sampled_from([2, 4])), draw(st.integers(1, 3))
    kinds = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]
    return {
        "model_type": "deepseek_v4", "vocab_size": draw(st.integers(17, 40)),
        "hidden_size": draw(st.sampled_from([16, 24])), "num_hidden_layers": layers, "num_attention_heads": heads,
        "moe_intermediate_size": draw(st.sampled_from([8, 16])),
        "num_key_value_heads": 1, "head_dim": 16, "q_lora_rank": 8, "num_experts_per_tok": draw(st.integers(1, 2)),
        "n_routed_experts": draw(st.integers(2, 4)),
        "layer_types": [draw(st.sampled_from(kinds)) for _ in range(layers)],
        "mlp_layer_types": [draw(st.sampled_from(["hash_moe", "moe"])) for _ in range(layers)],
        "compress_rates": {kinds[1]: draw(st.sampled_from([2, 3])), kinds[2]: draw(st.sampled_from([2, 4]))},
        "hc_mult": draw(st.sampled_from([2, 4])), "hc_sinkhorn_iters": draw(st.integers(1, 3)),
        "sliding_window": draw(st.sampled_from([3, 16])), "o_groups": draw(st.sampled_from([1, 2])), "o_lora_rank": 8,
        "index_n_heads": draw(st.integers(1, 2)), "index_head_dim": 16, "index_topk": 2, "mlp_bias": draw(FLAG),
        "partial_rotary_factor": draw(st.sampled_from([0.25, 0.5])), "tie_word_embeddings": draw(FLAG),
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "max_position_embeddings": 64,
    }  # fmt: skip


@st.composite
def longcat(draw: st.DrawFn) -> Config:
    """Every token goes to all experts, none of which does nothing: the class's own loop depends on the choice."""
    base = draw(latent_attention("longcat_flash"))
    names = ("hidden_size", "num_attention_heads", "vocab_size", "tie_word_embeddings", "kv_lora_rank",
             "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "attention_bias")  # fmt: skip
    experts = draw(st.integers(2, 3))
    return {
        **{name: base[name] for name in names}, "model_type": "longcat_flash", "q_lora_rank": 8, "moe_topk": experts,
        "num_layers": draw(st.integers(1, 2)), "ffn_hidden_size": 16, "expert_ffn_hidden_size": 8,
        "n_routed_experts": experts, "zero_expert_num": 0, "head_dim": base["qk_rope_head_dim"],
        "bos_token_id": 1, "eos_token_id": 2,
        "max_position_embeddings": 64,
    }  # fmt: skip


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "axk1": lambda: latent("axk1", rank=True, moe_layer_freq=st.integers(1, 2)),
    "axk2": lambda: latent("axk2", rank=True, groups=False, **INDEXER, gated_norm_rank=st.sampled_from([4, 8])),
    "deepseek_v4": deepseek_v4,
    "deepseek_v32": lambda: latent("deepseek_v32", rank=True, **INDEXER),
    "glm4_moe_lite": lambda: latent("glm4_moe_lite"),
    "glm_moe_dsa": lambda: latent("glm_moe_dsa", rank=True, **INDEXER, index_topk_freq=st.integers(1, 2)),
    "longcat_flash": longcat,
    "mistral4": lambda: latent("mistral4").map(
        lambda config: {key: value for key, value in config.items() if key != "mlp_layer_types"}
    ),
    "youtu": youtu,
}
