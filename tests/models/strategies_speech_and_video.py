"""Small configs of models that read sound, video or images of a vocabulary: a tower, a projector, a language model."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from strategies_documents_and_speech import CLASS_NAMES, TIED, speech
from strategies_vision import audio
from vision_tables import COUNT, FLAG, Config, Strategy, any_text, vision, whole


def whisper_like(model_type: str) -> Strategy:
    """Whisper's sizes under the names of all other encoders."""
    return audio(model_type).map(lambda c: {CLASS_NAMES.get(key, key): value for key, value in c.items()})


def turned(model_type: str) -> Strategy:
    """Without a table of positions."""
    return whisper_like(model_type).map(
        lambda c: {key: value for key, value in c.items() if key != "max_source_positions"}
    )


@st.composite
def ovis2(draw: st.DrawFn) -> Config:
    tower = vision(
        "ovis2_vision", qkv_bias=FLAG, mlp_bias=FLAG, vocab_size=st.sampled_from([12, 20]), hidden_stride=COUNT,
        num_visual_indicator_tokens=st.integers(1, 5),
    )  # fmt: skip
    config: Config = {
        "model_type": "ovis2",
        "text_config": draw(any_text()),
        "vision_config": draw(tower),
        **draw_tied(draw),
    }
    return config | {key: config["text_config"][key] for key in ("hidden_size", "vocab_size")}


def draw_tied(draw: st.DrawFn) -> Config:
    return {"tie_word_embeddings": draw(FLAG)}


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "audioflamingo3": lambda: speech("audioflamingo3", whisper_like("audioflamingo3_encoder"), projector_bias=FLAG),
    "glmasr": lambda: speech("glmasr", turned("glmasr_encoder"), **TIED),
    "musicflamingo": lambda: speech("musicflamingo", whisper_like("audioflamingo3_encoder"), projector_bias=FLAG),
    "ovis2": ovis2,
    "video_llama_3": lambda: whole(
        "video_llama_3", any_text(), vision("video_llama_3_vision", hidden_size=st.just(32), num_attention_heads=COUNT),
        **TIED
    ),
}  # fmt: skip
