"""Models of images or sound alone: loading is answered; training what is not described says so, with no number."""

from __future__ import annotations

import pytest

from vramwise import describe, estimate
from vramwise.errors import UnsupportedModelError
from vramwise.serving.common.checkpoint import file_contents

TYPES = ("bark", "convnext", "dac", "dinov3_vit", "patchtst", "sam", "sam2", "segformer", "vitpose", "wav2vec2")


@pytest.mark.parametrize("model_type", TYPES)
@pytest.mark.parametrize("train", [{}, {"zero_stage": 3}])
def test_training_what_is_not_described_gives_no_number(model_type: str, train: dict[str, object]) -> None:
    with pytest.raises(UnsupportedModelError, match="not described yet"):
        estimate({"model": {"model_type": model_type}, "task": "train", "train": train})


@pytest.mark.parametrize("model_type", TYPES)
def test_loading_is_answered(model_type: str) -> None:
    model = describe({"model_type": model_type})
    found = estimate({"model": {"model_type": model_type, "torch_dtype": "bfloat16"}, "task": "load"})
    assert found.quantities["weights"].expected >= 2 * model.num_parameters
    assert file_contents(model).in_the_model == model.num_parameters


def test_products_of_known_weights_are_quantized() -> None:
    """Depth Anything's encoder and SegFormer's layers are linear layers for bitsandbytes."""
    config = {"model_type": "segformer", "torch_dtype": "bfloat16"}
    settings = ({"engine": "transformers"}, {"engine": "transformers", "quantization": "bitsandbytes-nf4"})
    found = (estimate({"model": config, "task": "load", "serve": serve}) for serve in settings)
    whole, small = (one.quantities["weights"] for one in found)
    assert small.expected < 0.75 * whole.expected


@pytest.mark.parametrize("model_type", ["cpmant", "xlnet"])
def test_a_text_model_that_embeds_in_its_own_way_reads_tokens(model_type: str) -> None:
    found = estimate({"model": {"model_type": model_type}, "task": "train", "train": {"sequence_length": 64}})
    assert found.scenario["train"]["sequence_length"] == 64
    assert not any("images alone" in note for note in found.notes)
