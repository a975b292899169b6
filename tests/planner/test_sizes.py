"""Sizes of the catalog's models, written down so that hopeless ones are not described."""

from __future__ import annotations

import contextlib

import pytest

from vramwise.errors import VramwiseError
from vramwise.estimation import described_model, estimate
from vramwise.planner.bounds import WIDE
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


@pytest.mark.parametrize("gpu", ["t4", "h100"])
@pytest.mark.parametrize("model_id", [*SOME, "Qwen/Qwen2.5-Omni-7B"])
def test_weights_in_vllm_take_no_less_than_is_known_on_any_machine(model_id, gpu):
    bounds = known_bounds(model_id)
    for name, size in bounds.pooled_bytes.items() if bounds is not None else ():
        quantization = None if name in (WIDE, bounds.published_format) else name
        serve = {"engine": "vllm", "quantization": quantization, "max_model_len": 256}
        asked = {"model": model_id, "task": "serve", "gpu": gpu, "gpu_total_bytes": 4 * 10**12, "serve": serve}
        with contextlib.suppress(VramwiseError):  # which this card does not run
            assert estimate(asked).quantities["weights"].expected >= size


def test_most_sizes_are_those_of_todays_catalog():
    """After a change of the catalog: python tools/build_sizes.py"""
    known = [one for one in names().ids if _row(one) is not None]
    assert len(known) >= 0.9 * len(names().ids)


def test_of_models_of_one_size_the_newer_come_first():
    older = ["huggyllama/llama-65b", "meta-llama/Llama-2-70b-hf", "meta-llama/Meta-Llama-3-70B"]
    newer = ["meta-llama/Meta-Llama-3.1-70B", "meta-llama/Llama-3.3-70B-Instruct"]
    small = "meta-llama/Llama-3.2-1B"
    assert by_size([small, *older, *newer]) == [*newer[::-1], *older[::-1], small]
