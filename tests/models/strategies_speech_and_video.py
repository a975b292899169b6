"""Small configs of models that read sound, video or images of a vocabulary: a tower, a projector, a language model."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from strategies_documents_and_speech import CLASS_NAMES, TIED, speech
from strategies_vision import audio
from vision_tables import COUNT, FLAG, WIDTH, Config, Strategy, any_text, text, vision, whole


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
    config: Config = draw(whole("ovis2", any_text(), tower, **TIED))
    return config | {key: config["text_config"][key] for key in ("hidden_size", "vocab_size")}


@st.composite
def query_former(draw: st.DrawFn, model_type: str, **switches: Strategy) -> Config:
    heads = draw(COUNT)
    sizes = {
        "hidden_size": heads * draw(WIDTH), "num_attention_heads": heads, "num_hidden_layers": draw(st.integers(1, 3)),
        "intermediate_size": draw(st.integers(5, 20)), "vocab_size": draw(st.integers(17, 40)),
        "max_position_embeddings": 16, "cross_attention_frequency": draw(COUNT),
    }  # fmt: skip
    return {"model_type": model_type, **sizes} | {name: draw(strategy) for name, strategy in switches.items()}


@st.composite
def granite_speech(draw: st.DrawFn, model_type: str) -> Config:
    heads, rate = draw(COUNT), draw(COUNT)
    encoder = {
        "model_type": f"{model_type}_encoder", "input_dim": draw(st.integers(2, 9)), "num_layers": draw(COUNT),
        "hidden_dim": heads * draw(WIDTH), "feedforward_mult": draw(COUNT), "num_heads": heads,
        "dim_head": draw(st.none() | WIDTH), "output_dim": draw(st.integers(2, 9)), "max_pos_emb": 8, "context_size": 4,
        "conv_kernel_size": draw(st.sampled_from([3, 5])), "conv_expansion_factor": draw(COUNT),
    }  # fmt: skip
    read = draw(COUNT) if model_type.endswith("plus") else 1
    if read > 1:
        encoder["cat_hidden_layers"] = [0]
    former = draw(query_former("blip_2_qformer", encoder_hidden_size=st.just(read * encoder["hidden_dim"])))
    language = text("granite", attention_bias=FLAG, mlp_bias=FLAG, logits_scaling=st.sampled_from([1.0, 8.0]))
    return {
        "model_type": model_type, "text_config": draw(language), "encoder_config": encoder, "projector_config": former,
        "downsample_rate": rate, "window_size": rate * draw(COUNT), "tie_word_embeddings": draw(FLAG),
        "has_lora_adapter": False,
    }  # fmt: skip


@st.composite
def blip(draw: st.DrawFn, model_type: str) -> Config:
    """OPT, Llama or T5 behind the Q-Former."""
    inner = model_type.replace("blip-2", "blip_2")
    seq2seq = {
        "model_type": "t5", "d_model": 16, "d_kv": 8, "d_ff": 12, "num_layers": draw(COUNT), "num_heads": draw(COUNT),
        "vocab_size": 20, "tie_word_embeddings": draw(FLAG),
    }  # fmt: skip
    opt = {
        "model_type": "opt", "hidden_size": 16, "num_attention_heads": 2, "ffn_dim": 12, "vocab_size": 20,
        "num_hidden_layers": draw(COUNT), "max_position_embeddings": 32, "word_embed_proj_dim": 16,
    }  # fmt: skip
    former = {} if model_type != "blip-2" else {"use_qformer_text_input": FLAG}
    return {
        "model_type": model_type,
        "text_config": draw(st.one_of(st.just(seq2seq), st.just(opt), text("llama"))),
        "vision_config": draw(vision(f"{inner}_vision_model", qkv_bias=FLAG)),
        "qformer_config": draw(query_former(f"{inner}_qformer", **former)),
        "num_query_tokens": draw(COUNT),
    }


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "audioflamingo3": lambda: speech("audioflamingo3", whisper_like("audioflamingo3_encoder"), projector_bias=FLAG),
    "blip-2": lambda: blip("blip-2"),
    "granite_speech": lambda: granite_speech("granite_speech"),
    "granite_speech_plus": lambda: granite_speech("granite_speech_plus"),
    "instructblip": lambda: blip("instructblip"),
    "instructblipvideo": lambda: blip("instructblipvideo"),
    "glmasr": lambda: speech("glmasr", turned("glmasr_encoder"), **TIED),
    "musicflamingo": lambda: speech("musicflamingo", whisper_like("audioflamingo3_encoder"), projector_bias=FLAG),
    "ovis2": ovis2,
    "video_llama_3": lambda: whole(
        "video_llama_3", any_text(), vision("video_llama_3_vision", hidden_size=st.just(32), num_attention_heads=COUNT),
        **TIED
    ),
}  # fmt: skip
