"""Small configs of models that read documents or speech: a tower, a projector and a language model."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from strategies_vision import INTERNVL, audio
from vision_tables import COUNT, FLAG, WIDTH, Config, Strategy, any_text, frames, text, vision, whole

TIED = {"tie_word_embeddings": FLAG}
CLASS_NAMES = {
    "d_model": "hidden_size", "encoder_ffn_dim": "intermediate_size", "encoder_layers": "num_hidden_layers",
    "encoder_attention_heads": "num_attention_heads",
}  # fmt: skip


@st.composite
def speech(draw: st.DrawFn, model_type: str, sound: Strategy, **switches: Strategy) -> Config:
    config: Config = {"model_type": model_type, "text_config": draw(any_text()), "audio_config": draw(sound)}
    return config | {name: draw(strategy) for name, strategy in switches.items()}


def voxtral() -> Strategy:
    sound = audio("voxtral_encoder").map(lambda c: {CLASS_NAMES.get(key, key): value for key, value in c.items()})
    return speech("voxtral", sound)


def qwen3_asr() -> Strategy:
    sound = audio("qwen3_asr_encoder", output_dim=WIDTH, downsample_hidden_size=COUNT, num_mel_bins=st.integers(2, 20))
    return speech("qwen3_asr", sound, **TIED)


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "cohere2_vision": lambda: whole(
        "cohere2_vision", text("cohere2", attention_bias=FLAG), vision("siglip_vision_model", vision_use_head=FLAG),
        downsample_factor=COUNT, alignment_intermediate_size=st.sampled_from([8, 24]), **TIED
    ),
    "exaone4_5": lambda: whole(
        "exaone4_5", text("exaone4", sliding_window=st.sampled_from([4, 32]), sliding_window_pattern=COUNT),
        frames("exaone4_5_vision", num_key_value_heads=st.just(1), fullatt_block_indexes=st.just([0])), **TIED
    ),
    "glm_ocr": lambda: whole(
        "glm_ocr", text("glm_ocr_text", **TIED), frames("glm_ocr_vision", attention_bias=FLAG), **TIED
    ),
    "lighton_ocr": lambda: whole("lighton_ocr", any_text(), vision("pixtral"), spatial_merge_size=COUNT, **TIED),
    "paddleocr_vl": lambda: whole(
        "paddleocr_vl", text("paddleocr_vl_text", use_bias=FLAG, head_dim=st.just(8), **TIED),
        vision("paddleocr_vl_vision", spatial_merge_size=COUNT), **TIED
    ),
    "qianfan_ocr": lambda: whole(
        "qianfan_ocr", any_text(), INTERNVL.map(lambda c: {**c, "model_type": "qianfan_ocr_vision"}),
        downsample_ratio=st.sampled_from([0.5, 1.0]), **TIED
    ),
    "qwen3_asr": qwen3_asr,
    "voxtral": voxtral,
}  # fmt: skip
