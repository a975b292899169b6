"""Sizes of the catalog's models, written down so that hopeless ones are not described."""

from __future__ import annotations

import pytest

from vramwise.estimation import described_model
from vramwise.planner.running import bounds_of
from vramwise.planner.sizes import _row, by_size, known_bounds, num_parameters_of
from vramwise.sources.catalog import names

SOME = tuple(names().ids)[::25]


@pytest.mark.parametrize("model_id", SOME)
def test_a_size_is_the_described_models(model_id):
    assert num_parameters_of(model_id) == described_model(model_id)[1].num_parameters


@pytest.mark.parametrize("model_id", SOME)
def test_the_bytes_that_rule_a_model_out_are_the_described_models(model_id):
    """A row holds for a line of the catalog: what a family or a GGUF type weighs now is told by this alone."""
    if _row(model_id) is not None:
        assert known_bounds(model_id) == bounds_of(described_model(model_id)[1])


def test_most_sizes_are_those_of_todays_catalog():
    """After a change of the catalog: python tools/build_sizes.py"""
    known = [one for one in names().ids if _row(one) is not None]
    assert len(known) >= 0.9 * len(names().ids)


def test_of_models_of_one_size_the_newer_come_first():
    older = ["huggyllama/llama-65b", "meta-llama/Llama-2-70b-hf", "meta-llama/Meta-Llama-3-70B"]
    newer = ["meta-llama/Meta-Llama-3.1-70B", "meta-llama/Llama-3.3-70B-Instruct"]
    small = "meta-llama/Llama-3.2-1B"
    assert by_size([small, *older, *newer]) == [*newer[::-1], *older[::-1], small]
