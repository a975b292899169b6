"""Codebooks are large buffers, which loading holds beside the weights."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")

from config_strategies import STRATEGIES
from how_many import a_family
from hypothesis import given
from transformers_models import model_config, real_model

from vramwise import estimate
from vramwise.models import describe

BOOKS = ("embed", "embed_avg", "embed_sum")


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", ["encodec", "mimi", "xcodec"])
def test_codebooks_are_the_classs(model_type: str) -> None:
    @a_family(4)
    @given(STRATEGIES[model_type]())
    def same(config: dict[str, Any]) -> None:
        completed = {**model_config(config).to_dict(), "model_type": model_type}
        real = {
            name: tuple(one.shape) for name, one in real_model(completed, "none").named_buffers()
            if name.rpartition(".")[2] in BOOKS
        }  # fmt: skip
        assert {one.name: one.shape for one in describe(completed).buffers} == real

    same()


def test_loading_holds_codebooks() -> None:
    """Mimi's are 32 of 2,048 codes in 256 columns, in the dtype of the weights."""
    found = estimate({"model": {"model_type": "mimi", "torch_dtype": "float32"}, "task": "load"})
    weights = 4 * describe({"model_type": "mimi"}).num_parameters
    assert 0 <= found.quantities["weights"].expected - weights - 4 * 32 * 2048 * 256 < 0.01 * weights
