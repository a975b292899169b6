"""Small configs of decoders over codes of sound."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from strategies_variants import Config, decoder

FLAG = st.booleans()
COUNT = st.integers(1, 2)


@st.composite
def musicgen(draw: st.DrawFn, model_type: str) -> Config:
    heads = draw(COUNT)
    text = {
        "model_type": "t5", "vocab_size": draw(st.integers(9, 20)), "d_model": draw(st.sampled_from([8, 16])),
        "d_kv": 4, "d_ff": 6, "num_layers": draw(COUNT), "num_heads": draw(COUNT),
        "feed_forward_proj": draw(st.sampled_from(["relu", "gated-gelu"])),
    }  # fmt: skip
    sound = {
        "model_type": "encodec", "audio_channels": draw(COUNT), "hidden_size": 6, "num_filters": 4,
        "num_residual_layers": draw(COUNT), "upsampling_ratios": draw(st.sampled_from([[2], [3, 2]])),
        "compress": draw(COUNT), "num_lstm_layers": draw(COUNT), "use_conv_shortcut": draw(FLAG),
        "norm_type": draw(st.sampled_from(["weight_norm", "time_group_norm"])), "codebook_size": 4,
    }  # fmt: skip
    decoder = {
        "vocab_size": draw(st.integers(9, 20)), "hidden_size": heads * 8, "num_hidden_layers": draw(COUNT),
        "ffn_dim": draw(st.integers(5, 20)), "num_attention_heads": heads, "num_codebooks": draw(COUNT),
        "audio_channels": 1,
    }  # fmt: skip
    pitches = {"num_chroma": draw(st.sampled_from([8, 12]))} if model_type == "musicgen_melody" else {}
    return {"model_type": model_type, "text_encoder": text, "audio_encoder": sound, "decoder": decoder, **pitches}


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "musicgen": lambda: musicgen("musicgen"),
    "musicgen_melody": lambda: musicgen("musicgen_melody"),
    "moshi": lambda: decoder(
        "moshi",
        head_dim=st.sampled_from([None, 8, 24]),
        ffn_dim=st.sampled_from([8, 22]),
        sliding_window=st.sampled_from([4, 16]),
        attention_dropout=st.sampled_from([0.0, 0.1]),
    ),
}
