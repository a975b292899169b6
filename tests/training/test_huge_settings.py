"""The largest whole number in every setting that takes one, and 8-bit dtypes in every setting that takes a dtype."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from typing import Any

import pytest

from vramwise import estimate
from vramwise.errors import ScenarioError, VramwiseError
from vramwise.scenario import TrainSettings
from vramwise.scenario.values import LARGEST_WHOLE_NUMBER

WHOLE_NUMBERS = sorted(f.name for f in fields(TrainSettings) if str(f.type) in ("int", "int | None"))
NEEDS: dict[str, dict[str, Any]] = {
    "lora_rank": {"method": "lora"},
    "num_microbatches": {"pipeline_parallel_size": 2},
    "virtual_pipeline_parallel_size": {"pipeline_parallel_size": 2, "pipeline_schedule": "interleaved-1f1b"},
}


def ask(num_gpus: int | None, **train: Any) -> dict[str, Any]:
    table = {"model": "allenai/OLMoE-1B-7B-0924", "task": "train", "gpu": "rtx-4090", "train": train}
    return estimate(table | ({"num_gpus": num_gpus} if num_gpus else {})).to_dict()


def test_there_are_such_settings() -> None:
    assert {"micro_batch_size", "pipeline_parallel_size", "lora_rank"} <= set(WHOLE_NUMBERS)


@pytest.mark.parametrize("size", [10**8, LARGEST_WHOLE_NUMBER])
@pytest.mark.parametrize("key", ["num_gpus", *WHOLE_NUMBERS])
def test_a_huge_number_is_answered_or_refused(key: str, size: int) -> None:
    """It ends at all: nothing counts up to what was given."""
    if key == "num_gpus":
        assert ask(size, zero_stage=3)["quantities"]
        return
    train = {"zero_stage": 3} if key.startswith(("stage3", "reduce", "sub_group", "zero_hpz", "offload")) else {}
    with suppress(VramwiseError):
        assert ask(None, **train, **NEEDS.get(key, {}), **{key: size})["quantities"]


@pytest.mark.parametrize("size", [10**8, LARGEST_WHOLE_NUMBER])
@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("pipeline_parallel_size", "more than the 16 layers; expected 1"),
        ("context_parallel_size", "does not divide the 2,048 tokens of a sequence; expected 1"),
    ],
)
def test_more_ranks_than_there_are_parts_are_refused_with_what_can_be(key: str, words: str, size: int) -> None:
    with pytest.raises(ScenarioError, match=words):
        ask(None, **{key: size})


@pytest.mark.parametrize(
    ("train", "key"),
    [
        ({"compute_dtype": "fp8_e4m3"}, "train.compute_dtype"),
        ({"param_dtype": "fp8_e4m3"}, "train.param_dtype"),
        ({"param_dtype": "fp8_e5m2", "precision": "fp8-mixed"}, "train.param_dtype"),
        ({"method": "lora", "lora_dtype": "fp8_e5m2"}, "train.lora_dtype"),
    ],
)
def test_8_bits_are_refused_where_they_mean_nothing(train: dict[str, Any], key: str) -> None:
    with pytest.raises(ScenarioError, match=f"{key}: .*expected bf16, fp16 or fp32"):
        ask(None, **train)


@pytest.mark.parametrize("framework", ["torchtitan", "megatron"])
def test_8_bit_products_are_what_the_precision_says(framework: str) -> None:
    plain = ask(None, framework=framework, precision="fp8-mixed")
    stated = ask(None, framework=framework, precision="fp8-mixed", compute_dtype="fp8_e4m3")
    assert stated == plain


def test_adapters_train_on_weights_of_8_bits() -> None:
    half, wide = (
        ask(None, method="lora", param_dtype=dtype)["quantities"]["weights"]["expected"]
        for dtype in ("fp8_e4m3", "bf16")
    )
    assert 0.5 < half / wide < 0.6


def test_a_loss_over_no_vocabulary_has_no_chunks() -> None:
    """CLIP compares every image with every text: its logits are as wide as the batch."""
    train = {"loss": "chunked", "framework": "pytorch"}
    with pytest.raises(ScenarioError, match=r"train.loss: .*expected standard"):
        estimate({"model": "openai/clip-vit-base-patch32", "task": "train", "train": train})
