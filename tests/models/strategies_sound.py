"""Small configs of decoders over codes of sound."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from strategies_variants import Config, decoder

STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Config]]] = {
    "moshi": lambda: decoder(
        "moshi",
        head_dim=st.sampled_from([None, 8, 24]),
        ffn_dim=st.sampled_from([8, 22]),
        sliding_window=st.sampled_from([4, 16]),
        attention_dropout=st.sampled_from([0.0, 0.1]),
    ),
}
