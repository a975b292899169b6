"""Small configs of models that predict series of numbers, and of those that speak in several parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from strategies_codecs import encodec

Config = dict[str, Any]
FLAG = st.booleans()


@st.composite
def timesfm(draw: st.DrawFn, model_type: str) -> Config:
    config: Config = {
        "model_type": model_type, "hidden_size": draw(st.sampled_from([16, 32])), "num_attention_heads": 2,
        "head_dim": draw(st.sampled_from([4, 8])), "num_hidden_layers": draw(st.integers(1, 3)),
        "intermediate_size": draw(st.integers(5, 20)), "patch_length": draw(st.integers(2, 5)),
        "horizon_length": draw(st.integers(2, 5)), "quantiles": [0.1, 0.5, 0.9][: draw(st.integers(1, 3))],
    }  # fmt: skip
    if model_type == "timesfm":
        named, config["freq_size"] = "TimesFm", draw(st.integers(1, 4))
        config["use_positional_embedding"] = draw(FLAG)
    else:
        named = "TimesFm2_5"
        config |= {"num_key_value_heads": draw(st.sampled_from([1, 2])), "attention_bias": draw(FLAG),
                   "use_bias": draw(FLAG), "output_quantile_len": draw(st.integers(2, 9))}  # fmt: skip
    return {**config, "architectures": [draw(st.sampled_from([f"{named}Model", f"{named}ModelForPrediction"]))]}


@st.composite
def bark(draw: st.DrawFn) -> Config:
    def part() -> Config:
        rows = draw(st.integers(17, 30))
        return {
            "hidden_size": draw(st.sampled_from([8, 16])), "num_heads": 2, "num_layers": draw(st.integers(1, 2)),
            "block_size": draw(st.integers(5, 9)), "input_vocab_size": rows, "output_vocab_size": rows + 2,
            "bias": draw(FLAG),
        }  # fmt: skip

    fine = {**part(), "n_codes_total": draw(st.integers(3, 5)), "n_codes_given": draw(st.integers(1, 2))}
    fine["output_vocab_size"] = fine["input_vocab_size"]
    return {"model_type": "bark", "semantic_config": part(), "coarse_acoustics_config": part(),
            "fine_acoustics_config": fine, "codec_config": draw(encodec())}  # fmt: skip


@st.composite
def speecht5(draw: st.DrawFn) -> Config:
    count = draw(st.integers(1, 3))
    names = ["SpeechT5Model", "SpeechT5ForTextToSpeech", "SpeechT5ForSpeechToText", "SpeechT5ForSpeechToSpeech"]
    return {
        "model_type": "speecht5", "hidden_size": 16, "vocab_size": draw(st.integers(17, 30)),
        "encoder_layers": draw(st.integers(1, 2)), "decoder_layers": draw(st.integers(1, 2)),
        "encoder_attention_heads": draw(st.sampled_from([1, 2])), "decoder_attention_heads": 2,
        "encoder_ffn_dim": draw(st.integers(5, 20)), "decoder_ffn_dim": draw(st.integers(5, 20)),
        "conv_dim": [8] * count, "conv_kernel": [3, 2, 2][:count], "conv_stride": [2] * count,
        "conv_bias": draw(FLAG), "feat_extract_norm": draw(st.sampled_from(["group", "layer"])),
        "mask_time_prob": draw(st.sampled_from([0.0, 0.05])), "num_conv_pos_embeddings": draw(st.sampled_from([4, 6])),
        "num_conv_pos_embedding_groups": 2, "num_mel_bins": draw(st.integers(3, 6)),
        "speech_decoder_prenet_layers": draw(st.integers(1, 3)), "speech_decoder_prenet_units": draw(st.integers(3, 8)),
        "speaker_embedding_dim": draw(st.integers(3, 8)), "speech_decoder_postnet_layers": draw(st.integers(1, 3)),
        "speech_decoder_postnet_units": draw(st.integers(3, 8)), "speech_decoder_postnet_kernel": 3,
        "reduction_factor": draw(st.integers(1, 3)), "encoder_max_relative_position": draw(st.integers(3, 8)),
        "max_speech_positions": 20, "max_text_positions": 20, "architectures": [draw(st.sampled_from(names))],
    }  # fmt: skip


@st.composite
def patchtst(draw: st.DrawFn) -> Config:
    heads = ["Model", "ForPrediction", "ForRegression", "ForClassification", "ForPretraining"]
    return {
        "model_type": "patchtst", "num_input_channels": draw(st.integers(1, 3)), "d_model": 16,
        "context_length": draw(st.integers(10, 20)), "patch_length": draw(st.integers(2, 5)),
        "patch_stride": draw(st.integers(1, 3)), "num_hidden_layers": draw(st.integers(1, 2)),
        "num_attention_heads": 2, "ffn_dim": draw(st.integers(5, 20)), "share_embedding": draw(FLAG),
        "channel_attention": draw(FLAG), "norm_type": draw(st.sampled_from(["batchnorm", "layernorm"])),
        "bias": draw(FLAG), "positional_encoding_type": draw(st.sampled_from(["random", "sincos"])),
        "use_cls_token": draw(FLAG), "share_projection": draw(FLAG), "prediction_length": draw(st.integers(2, 5)),
        "pooling_type": draw(st.sampled_from(["mean", None])), "num_targets": draw(st.integers(1, 3)),
        "loss": draw(st.sampled_from(["mse", "nll"])), "architectures": [f"PatchTST{draw(st.sampled_from(heads))}"],
        "distribution_output": draw(st.sampled_from(["student_t", "normal", "negative_binomial"])),
    }  # fmt: skip


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "bark": bark,
    "patchtst": patchtst,
    "speecht5": speecht5,
    "timesfm": lambda: timesfm("timesfm"),
    "timesfm2_5": lambda: timesfm("timesfm2_5"),
}
