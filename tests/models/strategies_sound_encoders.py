"""Small configs of encoders of sound as models of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]
FLAG = st.booleans()


@st.composite
def wav2vec2(draw: st.DrawFn, model_type: str) -> Config:
    """The convolutions' norms, biases and masks, adapters, and the class with a product to characters or without."""
    heads, count = draw(st.sampled_from([1, 2])), draw(st.integers(1, 3))
    config: Config = {
        "model_type": model_type, "hidden_size": heads * draw(st.sampled_from([8, 16])), "num_attention_heads": heads,
        "num_hidden_layers": draw(st.integers(1, 3)), "intermediate_size": draw(st.integers(5, 20)),
        "vocab_size": draw(st.integers(5, 20)), "conv_dim": [8] * count, "conv_kernel": [3, 2, 2][:count],
        "conv_stride": [2] * count, "conv_bias": draw(FLAG),
        "feat_extract_norm": draw(st.sampled_from(["group", "layer"])),
        "num_conv_pos_embeddings": draw(st.sampled_from([4, 6])), "num_conv_pos_embedding_groups": 2,
        "mask_time_prob": draw(st.sampled_from([0.0, 0.05])), "do_stable_layer_norm": draw(FLAG),
    }  # fmt: skip
    if model_type == "wav2vec2":
        config |= {
            "add_adapter": draw(FLAG), "adapter_attn_dim": draw(st.none() | st.just(4)),
            "output_hidden_size": draw(st.none() | st.just(16)), "num_adapter_layers": draw(st.integers(1, 2)),
        }  # fmt: skip
    else:
        config |= {"feat_proj_layer_norm": draw(FLAG), "conv_pos_batch_norm": draw(FLAG)}
    if draw(FLAG):
        config["architectures"] = ["Wav2Vec2ForCTC" if model_type == "wav2vec2" else "HubertForCTC"]
    return config


@st.composite
def parakeet(draw: st.DrawFn) -> Config:
    heads = draw(st.sampled_from([1, 2]))
    encoder = {
        "model_type": "parakeet_encoder", "hidden_size": heads * draw(st.sampled_from([8, 16])),
        "num_attention_heads": heads, "num_hidden_layers": draw(st.integers(1, 3)), "attention_bias": draw(FLAG),
        "intermediate_size": draw(st.integers(5, 20)), "convolution_bias": draw(FLAG), "num_mel_bins": 16,
        "conv_kernel_size": draw(st.sampled_from([3, 5])), "subsampling_factor": draw(st.sampled_from([2, 4, 8])),
        "subsampling_conv_channels": draw(st.sampled_from([4, 8])),
    }  # fmt: skip
    return {"model_type": "parakeet_ctc", "encoder_config": encoder, "vocab_size": draw(st.integers(5, 20)),
            "architectures": ["ParakeetForCTC"]}  # fmt: skip


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "hubert": lambda: wav2vec2("hubert"),
    "parakeet_ctc": parakeet,
    "wav2vec2": lambda: wav2vec2("wav2vec2"),
}
