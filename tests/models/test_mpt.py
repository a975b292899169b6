"""MPT as llm-foundry builds it: its own parameter counts, and every switch that transformers' class leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.models import describe

# mosaicml/llm-foundry, scripts/train/benchmarking/README.md: ModelParams of runs with flash attention, learned
# positions and biases.
COUNTED = {
    (2048, 24, 16, 8192): 1_328_533_504,
    (5120, 40, 40, 512): 12_846_090_240,
    (8192, 80, 64, 2048): 64_862_437_376,
}


def config(**values: Any) -> dict[str, Any]:
    attention = {"alibi": False, "attn_type": "multihead_attention", **values.pop("attn_config", {})}
    sizes = {"d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": 32, "vocab_size": 100}
    return {"model_type": "mpt", **sizes, "no_bias": False, **values, "attn_config": attention}


@pytest.mark.parametrize(("sizes", "count"), COUNTED.items())
def test_counts_that_llm_foundry_publishes(sizes: tuple[int, ...], count: int) -> None:
    width, layers, heads, length = sizes
    model = describe(config(d_model=width, n_layers=layers, n_heads=heads, max_seq_len=length, vocab_size=50_368))
    assert model.num_parameters == count


@pytest.mark.parametrize(
    ("switches", "difference"),
    [
        ({"no_bias": True}, -(2 * 11 * 64 + 64)),
        ({"learned_pos_emb": False}, -32 * 64),
        ({"attn_config": {"alibi": True}}, -32 * 64),
        ({"expansion_ratio": 2}, -2 * (2 * 64 * 128 + 128)),
        ({"attn_config": {"qk_ln": True}}, 2 * 4 * 64),
        ({"attn_config": {"attn_type": "multiquery_attention"}}, -2 * 2 * 48 * 65),
        ({"attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 2}}, -2 * 2 * 32 * 65),
    ],
)
def test_switches(switches: dict[str, Any], difference: int) -> None:
    assert describe(config(**switches)).num_parameters - describe(config()).num_parameters == difference


def test_groups_are_what_the_cache_keeps() -> None:
    grouped = describe(config(attn_config={"attn_type": "grouped_query_attention", "kv_n_heads": 2}))
    assert [cache.elements_per_token for cache in grouped.caches] == [2 * 2 * 16] * 2
