"""A server at many lengths at once needs what it needs at each of them alone."""

from __future__ import annotations

import pytest

from vramwise.estimation import estimate, needs_of_lengths
from vramwise.points.columns import WORTH_ARRAYS
from vramwise.scenario import Scenario

SERVE = {"model": "meta-llama/Llama-3.1-8B", "task": "serve", "gpu": "h100", "serve": {"engine": "vllm"}}


def test_each_length_needs_what_it_needs_alone() -> None:
    lengths = [256, 4096, 131_072]
    many = needs_of_lengths(Scenario.from_dict(SERVE), lengths)
    assert many is not None
    assert many.high_bytes is not None
    for place, length in enumerate(lengths):
        alone = estimate({**SERVE, "serve": {"engine": "vllm", "max_model_len": length}})
        assert many.needed_bytes[place] == alone.needed.expected
        assert many.high_bytes[place] == alone.needed.high


@pytest.mark.parametrize("huge", [2**50, 2**53 - 1])
def test_sizes_beyond_64_bits_are_held(huge: int) -> None:
    """They are no whole numbers of an array: lists hold them."""
    many = needs_of_lengths(Scenario.from_dict(SERVE), [256, huge] * WORTH_ARRAYS)
    alone = needs_of_lengths(Scenario.from_dict(SERVE), [256])
    assert many is not None
    assert alone is not None
    assert many.needed_bytes[0] == alone.needed_bytes[0]
    assert many.needed_bytes[1] > 2**63
