"""Small configs made by hypothesis, one strategy a model type, each flipping every switch that the family reads."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]


@st.composite
def decoder(draw: st.DrawFn, model_type: str, **switches: st.SearchStrategy[Any]) -> Config:
    """Sizes that every grouped-query decoder has, and the family's own switches."""
    groups = draw(st.sampled_from([1, 2, 3]))
    head_dim = draw(st.sampled_from([8, 16]))
    heads = groups * draw(st.sampled_from([1, 2, 4]))
    config: Config = {
        "model_type": model_type,
        "hidden_size": heads * head_dim,
        "intermediate_size": draw(st.integers(5, 40)) * 2,
        "num_hidden_layers": draw(st.integers(1, 4)),
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "vocab_size": draw(st.integers(17, 90)),
        "tie_word_embeddings": draw(st.booleans()),
        "max_position_embeddings": 64,
    }
    config.update({name: draw(strategy) for name, strategy in switches.items()})
    return config


def gpt2() -> st.SearchStrategy[Config]:
    return st.fixed_dictionaries(
        {
            "model_type": st.just("gpt2"),
            "n_embd": st.sampled_from([16, 32, 48]),
            "n_layer": st.integers(1, 4),
            "n_head": st.sampled_from([1, 2, 4]),
            "n_inner": st.none() | st.integers(3, 90),
            "n_positions": st.integers(16, 64),
            "vocab_size": st.integers(17, 90),
            "tie_word_embeddings": st.booleans(),
        }
    )


STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "gpt2": gpt2,
    "llama": lambda: decoder(
        "llama", attention_bias=st.booleans(), mlp_bias=st.booleans(), head_dim=st.none() | st.sampled_from([8, 24])
    ),
    "mistral": lambda: decoder(
        "mistral", head_dim=st.none() | st.sampled_from([8, 24]), sliding_window=st.none() | st.just(16)
    ),
    "qwen2": lambda: decoder("qwen2", use_sliding_window=st.booleans(), max_window_layers=st.integers(0, 4)),
    "qwen3": lambda: decoder("qwen3", attention_bias=st.booleans(), head_dim=st.sampled_from([8, 16, 24])),
}

# Other families keep their strategies in files of their own beside this one.
for path in sorted(Path(__file__).parent.glob("strategies_*.py")):
    STRATEGIES.update(import_module(path.stem).STRATEGIES)
