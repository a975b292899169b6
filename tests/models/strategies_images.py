"""Small configs of models that read images in ways of their own: Emu 3, GIT, Gemma 4 unified."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from strategies_gemma4 import gemma4 as gemma4_text
from vision_tables import COUNT, FLAG, WIDTH, Config, Strategy, text, vision


@st.composite
def emu3(draw: st.DrawFn) -> Config:
    inner = draw(
        text(
            "emu3_text_model", attention_bias=FLAG, mlp_bias=FLAG, attention_dropout=st.sampled_from([0.0, 0.1]),
            tie_word_embeddings=FLAG, pad_token_id=st.just(0),
        )
    )  # fmt: skip
    del inner["rope_parameters"]
    return {"model_type": "emu3", "text_config": inner}


@st.composite
def git(draw: st.DrawFn) -> Config:
    heads = draw(COUNT)
    return {
        "model_type": "git",
        "vision_config": draw(vision("git_vision_model")),
        "vocab_size": draw(st.integers(17, 40)),
        "hidden_size": heads * draw(WIDTH),
        "num_hidden_layers": draw(COUNT),
        "num_attention_heads": heads,
        "intermediate_size": draw(st.integers(5, 40)),
        "max_position_embeddings": draw(st.integers(9, 30)),
        "tie_word_embeddings": draw(FLAG),
        "num_image_with_embedding": draw(st.none() | COUNT),
    }


@st.composite
def gemma4_unified(draw: st.DrawFn) -> Config:
    """Pixels, samples, both or neither."""
    width = draw(WIDTH)
    pixels = {
        "patch_size": draw(COUNT),
        "pooling_kernel_size": draw(COUNT),
        "mm_embed_dim": width,
        "output_proj_dims": width,
        "mm_posemb_size": draw(st.integers(2, 9)),
    }
    return {
        "model_type": "gemma4_unified",
        "text_config": draw(gemma4_text("gemma4_unified_text")),
        "vision_config": draw(st.none() | st.just(pixels)),
        "audio_config": draw(st.none() | st.just({"audio_embed_dim": 6})),
        "tie_word_embeddings": draw(FLAG),
    }


STRATEGIES: dict[str, Callable[[], Strategy]] = {"emu3": emu3, "gemma4_unified": gemma4_unified, "git": git}
