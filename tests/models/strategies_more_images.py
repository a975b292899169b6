"""Small configs of models whose images go through mergers, pooling by attention or heads of their own."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from strategies_delta_net import STRATEGIES as DELTA_NETS
from strategies_documents_and_speech import TIED
from strategies_vision import STRATEGIES as IMAGES
from vision_tables import COUNT, FLAG, WIDTH, Config, Strategy, text, vision, whole


@st.composite
def molmo2(draw: st.DrawFn) -> Config:
    heads, d = draw(COUNT), draw(WIDTH)
    layers = draw(COUNT)
    shared = {"num_attention_heads": 2, "num_key_value_heads": heads, "head_dim": d, "attention_bias": draw(FLAG)}
    tower = {
        "hidden_size": 16, "intermediate_size": draw(st.integers(5, 20)), "num_hidden_layers": layers,
        "image_size": [16, 8], "patch_size": 4, "num_channels": draw(COUNT), **shared,
    }  # fmt: skip
    language = text(
        "molmo2_text", additional_vocab_size=st.integers(0, 3), attention_bias=FLAG, head_dim=st.just(8),
        qk_norm_type=st.sampled_from(["qwen3", "olmo"]), norm_after=FLAG,
        rope_scaling_layers=st.none() | st.just([0]),
        rope_parameters=st.just({"rope_type": "default", "rope_theta": 1e4}),
    )  # fmt: skip
    adapter = {
        "vision_feature_layer": list(range(layers)), "hidden_size": 16, "mlp_bias": draw(FLAG), "text_hidden_size": 8,
        "intermediate_size": draw(st.integers(5, 20)), **shared,
    }  # fmt: skip
    return {"model_type": "molmo2", "text_config": draw(language), "vision_config": tower, "adapter_config": adapter}


@st.composite
def voxtral_realtime(draw: st.DrawFn) -> Config:
    sound = {
        "model_type": "voxtral_realtime_encoder", "hidden_size": draw(WIDTH), "num_hidden_layers": draw(COUNT),
        "intermediate_size": draw(st.integers(5, 20)), "num_attention_heads": draw(COUNT), "head_dim": draw(WIDTH),
        "num_mel_bins": draw(st.integers(2, 5)),
    }  # fmt: skip
    language = text("voxtral_realtime_text", head_dim=WIDTH, sliding_window=st.none() | st.just(4))
    return {
        "model_type": "voxtral_realtime", "text_config": draw(language), "audio_config": sound,
        "downsample_factor": draw(COUNT), "tie_word_embeddings": draw(FLAG),
    }  # fmt: skip


def minicpmv46(model_type: str = "minicpmv4_6") -> Strategy:
    tower = vision(
        f"{model_type}_vision", window_kernel_size=st.sampled_from([[2, 2], [2, 1]]), hidden_size=st.just(16),
        num_attention_heads=COUNT,
    )  # fmt: skip
    return whole(model_type, DELTA_NETS["qwen3_5_text"](), tower, merger_times=COUNT, **TIED)


@st.composite
def late_interaction(draw: st.DrawFn, model_type: str, inside: str) -> Config:
    return {
        "model_type": model_type, "vlm_config": draw(IMAGES[inside]()), "embedding_dim": draw(st.integers(3, 9)),
        "architectures": [{"colpali": "ColPaliForRetrieval", "colqwen2": "ColQwen2ForRetrieval"}[model_type]],
    }  # fmt: skip


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "colpali": lambda: late_interaction("colpali", "paligemma"),
    "colqwen2": lambda: late_interaction("colqwen2", "qwen2_vl"),
    "minicpm_ocr": lambda: minicpmv46("minicpm_ocr"),
    "minicpmv4_6": minicpmv46,
    "minicpmv4_7": lambda: minicpmv46("minicpmv4_7"),
    "molmo2": molmo2,
    "shieldgemma2": lambda: whole(
        "shieldgemma2", text("gemma3_text", head_dim=WIDTH, sliding_window=st.just(4), attention_bias=FLAG),
        vision("siglip_vision_model", vision_use_head=FLAG), mm_tokens_per_image=st.just(4), **TIED
    ),
    "voxtral_realtime": voxtral_realtime,
}  # fmt: skip
