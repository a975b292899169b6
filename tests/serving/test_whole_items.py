"""A batch that takes the largest image or video whole, as vLLM's logs say it ("Raising max_num_batched_tokens …")."""

from __future__ import annotations

import pytest

from vramwise.estimation import estimate

VIDEO = 32 * (70 + 2 + 6)


@pytest.mark.parametrize(
    ("model", "settings", "expected"),
    [
        ("google/gemma-4-26B-A4B", {"engine_version": "0.25.1"}, VIDEO),
        (
            "google/gemma-4-26B-A4B",
            {"engine_version": "0.22.1", "limit_mm_per_prompt": {"image": 0, "video": 0}},
            VIDEO,
        ),
        ("google/gemma-4-26B-A4B", {"engine_version": "0.33.0", "language_model_only": True}, 2048),
        ("google/gemma-4-26B-A4B", {"engine_version": "0.25.1", "max_num_batched_tokens": 2048}, 2048),
        ("google/gemma-4-26B-A4B", {"engine_version": "0.25.1", "max_model_len": 16, "max_num_seqs": 16}, 256),
        ("google/gemma-4-26B-A4B", {"engine_version": "0.20.2"}, 2048),
        ("google/gemma-4-12B-it", {"engine_version": "0.33.0"}, VIDEO),
        ("google/gemma-4-12B-it", {"engine_version": "0.33.0", "limit_mm_per_prompt": {"image": 0, "video": 0}}, VIDEO),
        ("google/gemma-4-E4B-it", {"engine_version": "0.25.1"}, 2048),  # an item's tokens see no later ones
        ("google/gemma-3-27b-it", {"engine_version": "0.25.1"}, 2048),  # its class does not say how large an item is
    ],
)
def test_default_batch(model: str, settings: dict[str, object], expected: int) -> None:
    result = estimate({"model": model, "task": "serve", "gpu": "gb10-128gb", "serve": {"engine": "vllm", **settings}})
    serve = result.scenario["serve"]
    assert isinstance(serve, dict)
    assert serve["max_num_batched_tokens"] == expected
