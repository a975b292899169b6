"""Small configs of DeepSeek-VL 7B and Janus."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from strategies_vision import POOLED, TIED
from vision_tables import COUNT, FLAG, WIDTH, Config, Strategy, any_text, vision, whole

SAM = vision(
    "sam_vision_model", image_size=st.just(16), mlp_dim=st.none() | st.integers(5, 20), output_channels=WIDTH,
    qkv_bias=FLAG, window_size=COUNT, global_attn_indexes=st.sampled_from([[0], [0, 1]]), use_rel_pos=FLAG,
    use_abs_pos=FLAG,
)  # fmt: skip
CODES = {
    "embed_dim": COUNT, "num_embeddings": st.integers(2, 9), "latent_channels": COUNT, "in_channels": COUNT,
    "base_channels": st.just(32), "channel_multiplier": st.sampled_from([[1], [1, 2], [2, 1, 1]]),
    "num_res_blocks": COUNT, "out_channels": COUNT, "projection_dim": WIDTH, "num_hidden_layers": COUNT,
    "image_token_embed_dim": WIDTH, "double_latent": FLAG,
}  # fmt: skip


@st.composite
def janus(draw: st.DrawFn) -> Config:
    sizes = draw(
        vision("janus_vision_model", attention_bias=FLAG, projection_dim=st.just(16), depth=COUNT, use_qk_norm=FLAG,
               mlp_ratio=st.sampled_from([2.0, 1.5]))
    )  # fmt: skip
    del sizes["intermediate_size"]
    codes = draw(st.fixed_dictionaries(CODES))
    rest = {"vision_config": sizes, "vq_config": codes, "tie_word_embeddings": draw(FLAG)}
    return {"model_type": "janus", "text_config": draw(any_text()), **rest}


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "deepseek_vl_hybrid": lambda: whole(
        "deepseek_vl_hybrid", any_text(), POOLED, high_res_vision_config=SAM, **TIED
    ),
    "janus": janus,
}  # fmt: skip
