"""Small configs of codecs of sound as models of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]
FLAG = st.booleans()


@st.composite
def convolutions(draw: st.DrawFn) -> Config:
    """What EnCodec and Mimi share: halves of convolutions with residual blocks."""
    count = draw(st.integers(1, 3))
    return {
        "hidden_size": draw(st.sampled_from([8, 16])), "num_filters": draw(st.sampled_from([4, 6])),
        "upsampling_ratios": [draw(st.sampled_from([2, 3])) for _ in range(count)],
        "num_residual_layers": draw(st.integers(1, 2)), "use_conv_shortcut": draw(FLAG),
        "kernel_size": draw(st.sampled_from([3, 7])), "last_kernel_size": draw(st.sampled_from([3, 5])),
        "residual_kernel_size": draw(st.sampled_from([3, 5])), "compress": draw(st.sampled_from([1, 2])),
        "audio_channels": draw(st.integers(1, 2)), "codebook_size": draw(st.sampled_from([16, 32])),
    }  # fmt: skip


@st.composite
def encodec(draw: st.DrawFn) -> Config:
    return {
        "model_type": "encodec", **draw(convolutions()), "num_lstm_layers": draw(st.integers(1, 2)),
        "norm_type": draw(st.sampled_from(["weight_norm", "time_group_norm"])), "target_bandwidths": [1.5, 300.0],
        "codebook_dim": draw(st.none() | st.just(4)),
    }  # fmt: skip


@st.composite
def mimi(draw: st.DrawFn) -> Config:
    config = draw(convolutions())
    width, half = config["hidden_size"], 12_000 / _product(config["upsampling_ratios"])
    return {
        "model_type": "mimi", **config, "num_hidden_layers": draw(st.integers(1, 2)), "num_attention_heads": 2,
        "num_key_value_heads": draw(st.sampled_from([1, 2])), "head_dim": draw(st.none() | st.just(6)),
        "intermediate_size": draw(st.integers(5, 20)), "upsample_groups": draw(st.sampled_from([1, width])),
        "vector_quantization_hidden_dimension": draw(st.sampled_from([4, width])), "codebook_dim": 4,
        "num_quantizers": draw(st.integers(3, 5)), "num_semantic_quantizers": draw(st.integers(1, 2)),
        "attention_bias": draw(FLAG), **({"frame_rate": half} if draw(FLAG) else {}),
    }  # fmt: skip


def _product(ratios: list[int]) -> int:
    found = 1
    for ratio in ratios:
        found *= ratio
    return found


@st.composite
def dac(draw: st.DrawFn) -> Config:
    ratios = [draw(st.sampled_from([2, 3, 4])) for _ in range(draw(st.integers(1, 3)))]
    config: Config = {
        "model_type": "dac", "encoder_hidden_size": draw(st.sampled_from([4, 6])), "downsampling_ratios": ratios,
        "decoder_hidden_size": draw(st.sampled_from([16, 24])), "n_codebooks": draw(st.integers(1, 3)),
        "codebook_size": draw(st.sampled_from([16, 32])), "codebook_dim": draw(st.integers(2, 5)),
    }  # fmt: skip
    return {**config, "hidden_size": draw(st.integers(5, 9))} if draw(FLAG) else config


@st.composite
def xcodec(draw: st.DrawFn) -> Config:
    semantic = {
        "model_type": "hubert", "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1,
        "intermediate_size": 20, "conv_dim": [8, 8], "conv_kernel": [3, 2], "conv_stride": [2, 2],
        "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
    }  # fmt: skip
    acoustic = {key: value for key, value in draw(dac()).items() if key != "hidden_size"}
    acoustic["upsampling_ratios"] = acoustic["downsampling_ratios"][::-1]
    blocks = draw(st.integers(1, 2))
    return {
        "model_type": "xcodec", "acoustic_model_config": {**acoustic, "hidden_size": draw(st.integers(5, 9))},
        "semantic_model_config": semantic, "kernel_size": draw(st.sampled_from([3, 5])),
        "strides": [draw(st.integers(1, 2)) for _ in range(blocks)], "unit_kernel_size": draw(st.sampled_from([3, 5])),
        "channel_ratios": [draw(st.integers(1, 2)) for _ in range(blocks)],
        "block_dilations": [1] * draw(st.integers(1, 2)), "codebook_size": 16, "target_bandwidths": [1, 40],
    }  # fmt: skip


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "dac": dac,
    "encodec": encodec,
    "mimi": mimi,
    "xcodec": xcodec,
}
