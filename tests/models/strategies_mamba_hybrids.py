"""Small configs of decoders that mix Mamba layers with attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from config_strategies import decoder
from hypothesis import strategies as st

Config = dict[str, Any]
Switch = st.SearchStrategy[Any]

FLAG = st.booleans()
MAMBA: dict[str, Switch] = {
    "mamba_d_state": st.sampled_from([4, 8]),
    "mamba_d_conv": st.sampled_from([2, 4]),
    "mamba_conv_bias": FLAG,
    "mamba_proj_bias": FLAG,
    "mamba_chunk_size": st.sampled_from([4, 8]),
}
MIXED = ["linear_attention", "full_attention", "linear_attention", "full_attention"]


@st.composite
def mamba_decoder(draw: st.DrawFn, model_type: str, **switches: Switch) -> Config:
    """Attention heads and Mamba heads that agree with one hidden size."""
    config = draw(decoder(model_type, attention_bias=FLAG, **MAMBA, **switches))
    groups = draw(st.sampled_from([1, 2]))
    return config | {"mamba_n_groups": groups, "mamba_n_heads": groups * draw(st.sampled_from([1, 2]))}


@st.composite
def bamba(draw: st.DrawFn) -> Config:
    return draw(mamba_decoder("bamba", mlp_bias=FLAG)) | {"attn_layer_indices": draw(st.sampled_from([None, [0], [1]]))}


@st.composite
def granite(draw: st.DrawFn) -> Config:
    config = draw(
        mamba_decoder(
            "granitemoehybrid",
            shared_intermediate_size=st.sampled_from([8, 24]),
            position_embedding_type=st.sampled_from([None, "rope"]),
            num_local_experts=st.sampled_from([0, 4]),
        )
    )
    kinds = draw(st.permutations(MIXED))[: config["num_hidden_layers"]]
    # torch's grouped products want rows of 16 bytes
    width = draw(st.sampled_from([8, 24]))
    return config | {"layer_types": draw(st.sampled_from([None, list(kinds)])), "intermediate_size": width}


@st.composite
def falcon_h1(draw: st.DrawFn) -> Config:
    config = draw(mamba_decoder("falcon_h1", projectors_bias=FLAG, mlp_bias=FLAG, mamba_rms_norm=FLAG))
    own = draw(st.sampled_from([None, config["mamba_n_heads"] * 8]))
    return config | {"mamba_d_ssm": own, "mamba_norm_before_gate": draw(FLAG)}


@st.composite
def nemotron_h(draw: st.DrawFn) -> Config:
    groups = draw(st.sampled_from([1, 2]))
    config = draw(decoder("nemotron_h", head_dim=st.sampled_from([8, 16]), mlp_bias=FLAG, use_bias=FLAG))
    del config["num_hidden_layers"]
    kinds = st.sampled_from(["linear_attention", "full_attention", "moe", "mlp"])
    return config | {
        "layers_block_type": draw(st.lists(kinds, min_size=1, max_size=4)),
        "n_groups": groups,
        "mamba_num_heads": groups * draw(st.sampled_from([1, 2])),
        "mamba_head_dim": draw(st.sampled_from([4, 8])),
        "ssm_state_size": draw(st.sampled_from([4, 8])),
        "chunk_size": draw(st.sampled_from([4, 8])),
        "use_conv_bias": draw(FLAG),
        "moe_intermediate_size": draw(st.sampled_from([8, 24])),
        "moe_shared_expert_intermediate_size": draw(st.sampled_from([8, 16])),
        "moe_latent_size": draw(st.sampled_from([None, 8])),
        "norm_topk_prob": draw(FLAG),
    }


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "bamba": bamba,
    "falcon_h1": falcon_h1,
    "granitemoehybrid": granite,
    "nemotron_h": nemotron_h,
}
