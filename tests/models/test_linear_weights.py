"""What is an `nn.Linear` in the class is one here, so that quantizers and LoRA on all linear layers take it."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from config_strategies import STRATEGIES
from how_many import a_family
from hypothesis import given
from transformers_models import model_config, real_model

from vramwise.models import describe


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", ["csm", "speecht5", "wav2vec2", "xcodec"])
def test_linear_layers_are_the_classs(model_type: str) -> None:
    @a_family(4)
    @given(STRATEGIES[model_type]())
    def same(config: dict[str, Any]) -> None:
        completed = {**model_config(config).to_dict(), "model_type": model_type}
        described = describe(completed)
        modules = real_model(completed, described.head).named_modules()
        real = {f"{name}.weight" for name, one in modules if type(one) is torch.nn.Linear}
        assert {one.name for one in described.all_parameters if one.is_linear} == real

    same()
