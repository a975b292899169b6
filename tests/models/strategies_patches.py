"""Small configs of models whose towers over patches are known by their weights, and of Qwen's towers elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from strategies_dots3 import STRATEGIES as DOTS
from strategies_inkling import STRATEGIES as INKLING
from strategies_llama_kin import STRATEGIES as LLAMAS
from strategies_short_convolutions import STRATEGIES as CONVOLUTIONS
from vision_tables import COUNT, FLAG, WIDTH, Config, Strategy, frames, text, vision, whole

ROPE = st.just({"rope_type": "default", "rope_theta": 10_000.0})
SCALES: dict[str, Strategy] = {
    "embedding_multiplier": st.sampled_from([1.0, 12.0]),
    "logits_scaling": st.sampled_from([1.0, 4.0]),
    "attention_bias": FLAG,
    "mlp_bias": FLAG,
    "rope_parameters": ROPE,
}
TIED: dict[str, Strategy] = {"tie_word_embeddings": FLAG}


@st.composite
def granite_docling(draw: st.DrawFn) -> Config:
    inner = draw(text("granite_docling_text", pad_token_id=st.just(0), **SCALES))
    fine = draw(FLAG)
    tower = vision(
        "granite_docling_vision", image_size=st.just(32), patch_size=st.just(8), scale_factor=st.sampled_from([2, 4]),
        out_hidden_size=st.just(inner["hidden_size"]), use_fine_route=st.just(fine),
        deepstack_visual_indexes=st.sampled_from([[], [0]]), num_channels=st.just(3),
    )  # fmt: skip
    return {
        "model_type": "granite_docling", "text_config": inner, "vision_config": draw(tower), "pad_token_id": 0,
        "density_router_hidden_size": draw(st.sampled_from([None, 6])) if fine else None,
        "tie_word_embeddings": draw(FLAG),
    }  # fmt: skip


@st.composite
def granite4_vision(draw: st.DrawFn) -> Config:
    tower = vision(
        "siglip_vision_model", hidden_size=st.just(64), num_attention_heads=COUNT, vision_use_head=st.just(False)
    )  # fmt: skip
    former = {
        "model_type": "blip_2_qformer", "num_hidden_layers": draw(COUNT), "cross_attention_frequency": draw(COUNT),
        "intermediate_size": 12, "use_qformer_text_input": False,
    }  # fmt: skip
    return draw(
        whole(
            "granite4_vision", text("granite4_vision_text", **SCALES), tower, **TIED,
            downsample_rate=st.sampled_from(["1/2", "2/4"]), qformer_config=st.none() | st.just(former),
            deepstack_layer_map=st.sampled_from([[[-1, 0]], [[-1, 0], [-2, 1]]]),
        )
    )  # fmt: skip


@st.composite
def inkling2(draw: st.DrawFn) -> Config:
    inner = draw(INKLING["inkling2_text"]())
    tower = vision(
        "inkling2_vision", mlp_ratio=st.sampled_from([2.0, 4.0]), posemb_grid_size=st.integers(2, 4),
        spatial_merge_size=COUNT, projection_hidden_dim=st.integers(4, 9), projector_bias=FLAG,
        text_hidden_size=st.just(inner["hidden_size"]), intermediate_size=st.none() | st.just(12),
    )  # fmt: skip
    return {"model_type": "inkling2", "text_config": inner, "vision_config": draw(tower)}


@st.composite
def lfm3_vl(draw: st.DrawFn) -> Config:
    layers = draw(st.integers(1, 4))
    kinds = st.lists(st.sampled_from(["conv", "full_attention"]), min_size=layers, max_size=layers)
    tower = {
        "model_type": "lfm3_vl_vision", "hidden_size": 16, "intermediate_size": draw(st.integers(5, 20)),
        "in_channels": draw(COUNT), "patch_size": 4, "spatial_merge_size": draw(COUNT), "num_hidden_layers": layers,
        "temporal_patch_size": draw(COUNT), "num_attention_heads": 2, "num_key_value_heads": draw(COUNT),
        "conv_kernel_size": draw(st.sampled_from([1, 3])), "layer_types": draw(st.none() | kinds),
    }  # fmt: skip
    return {
        "model_type": "lfm3_vl", "text_config": draw(CONVOLUTIONS["lfm3"]()), "vision_config": tower,
        "projector_hidden_size": draw(st.integers(5, 9)), "projector_bias": draw(FLAG),
        "tie_word_embeddings": draw(FLAG),
    }  # fmt: skip


def hunyuan(model_type: str, inner: Strategy, **switches: Strategy) -> Strategy:
    tower = vision(
        f"{model_type}_vision", max_image_size=st.sampled_from([16, 32]), spatial_merge_size=COUNT, **switches
    )  # fmt: skip
    return whole(model_type, inner, tower, **TIED)


def hy4_text(config: Config) -> Config:
    """With sections for positions of three axes."""
    half = config["qk_rope_head_dim"] // 2
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [half, 0, 0]}
    return {**config, "model_type": "hy_v4_vl_text", "rope_parameters": rope}


DEEP: dict[str, Strategy] = {
    "num_position_embeddings": st.sampled_from([4, 16]), "deepstack_visual_indexes": st.sampled_from([[], [0]]),
}  # fmt: skip
STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "cohere_compass": lambda: whole(
        "cohere_compass", LLAMAS["cohere_compass_text"](), frames("cohere_compass_vision", **DEEP), **TIED
    ),
    "glmga": lambda: whole(
        "glmga", text("glm4v_text", **TIED), frames("glm4v_vision", image_size=st.just(16), attention_bias=FLAG), **TIED
    ),
    "granite4_vision": granite4_vision,
    "granite_docling": granite_docling,
    "hunyuan_vl": lambda: hunyuan(
        "hunyuan_vl", text("hunyuan_vl_text", attention_bias=FLAG, head_dim=st.just(8), **TIED)
    ),
    "hy_v4_vl": lambda: hunyuan("hy_v4_vl", DOTS["hy_v4"]().map(hy4_text), out_hidden_size=WIDTH),
    "hyperclovax_vision_v2": lambda: whole(
        "hyperclovax_vision_v2", LLAMAS["hyperclovax"](),
        frames("qwen2_5_vl_vision", fullatt_block_indexes=st.sampled_from([[], [0]]), window_size=st.just(16)), **TIED
    ),
    "inkling2": inkling2,
    "lfm3_vl": lfm3_vl,
}  # fmt: skip
