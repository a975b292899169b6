"""Tables of small configs with towers: a decoder, an encoder of images, one of frames, and what holds them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]
Strategy = st.SearchStrategy[Config]
FLAG = st.booleans()
COUNT = st.integers(1, 2)
WIDTH = st.sampled_from([8, 16])
LISTED = st.sampled_from([-1, [-1, -2]])


@st.composite
def text(draw: st.DrawFn, model_type: str, **switches: Strategy) -> Config:
    """A grouped-query decoder with heads of 8 columns, and sections for positions of three axes."""
    groups, times = draw(COUNT), draw(COUNT)
    config: Config = {
        "model_type": model_type,
        "hidden_size": groups * times * 8,
        "intermediate_size": draw(st.integers(5, 20)) * 2,
        "num_hidden_layers": draw(COUNT),
        "num_attention_heads": groups * times,
        "num_key_value_heads": groups,
        "vocab_size": draw(st.integers(17, 40)),
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 1, 1]},
    }
    return config | {name: draw(strategy) for name, strategy in switches.items()}


def any_text() -> Strategy:
    return st.one_of(
        text("llama", attention_bias=FLAG, mlp_bias=FLAG),
        text("mistral", head_dim=WIDTH, sliding_window=st.none() | st.just(4)),
        text("qwen2", use_sliding_window=FLAG, sliding_window=st.just(4), max_window_layers=COUNT),
        text("qwen3", attention_bias=FLAG, head_dim=WIDTH),
    )


@st.composite
def vision(draw: st.DrawFn, model_type: str, **switches: Strategy) -> Config:
    """A tower of a pre-trained encoder; images are larger than whole patches."""
    heads = draw(COUNT)
    config: Config = {
        "model_type": model_type,
        "hidden_size": heads * draw(WIDTH),
        "intermediate_size": draw(st.integers(5, 40)),
        "num_hidden_layers": draw(COUNT),
        "num_attention_heads": heads,
        "num_channels": draw(COUNT),
        "image_size": draw(st.sampled_from([16, 21])),
        "patch_size": draw(st.sampled_from([4, 8])),
    }
    return config | {name: draw(strategy) for name, strategy in switches.items()}


@st.composite
def frames(draw: st.DrawFn, model_type: str, **switches: Strategy) -> Config:
    """A tower over pairs of frames."""
    heads = draw(COUNT)
    config: Config = {
        "model_type": model_type,
        "hidden_size": heads * draw(WIDTH),
        "intermediate_size": draw(st.integers(5, 40)),
        "depth": draw(COUNT),
        "num_heads": heads,
        "in_channels": draw(COUNT),
        "patch_size": draw(st.sampled_from([4, 8])),
        "temporal_patch_size": draw(COUNT),
        "spatial_merge_size": draw(COUNT),
        "out_hidden_size": draw(st.sampled_from([8, 24])),
    }
    return config | {name: draw(strategy) for name, strategy in switches.items()}


@st.composite
def whole(draw: st.DrawFn, model_type: str, texts: Strategy, visions: Strategy, **switches: Strategy) -> Config:
    config: Config = {"model_type": model_type, "text_config": draw(texts), "vision_config": draw(visions)}
    return config | {name: draw(strategy) for name, strategy in switches.items()}
