"""A description that was kept between runs (planner/recorded_shapes.py) runs what the one that was made runs."""

from __future__ import annotations

import pytest
from described_types import small_model

from vramwise.models.family_of_type import FAMILY_OF_TYPE
from vramwise.planner.recorded_shapes import _read, _written


@pytest.mark.parametrize("model_type", sorted(FAMILY_OF_TYPE))
def test_a_description_that_is_read_again_has_the_same_operations_and_settings(model_type: str) -> None:
    """Eager attention of a Llama that `fit` had kept lost its softmax in fp32: its style was another object."""
    made = small_model(model_type).blocks
    read = _read(_written(made))
    assert [block.signature for block in read] == [block.signature for block in made]
