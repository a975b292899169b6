"""A preference comes as a pair of rows: no advice names a micro batch of half a pair, or another loss."""

from __future__ import annotations

import re

import pytest

from vramwise.estimation import estimate
from vramwise.planner import suggestions
from vramwise.planner.option import Wishes
from vramwise.planner.plan import plan
from vramwise.scenario import Scenario

SIZE = re.compile(r"(?:micro_batch_size|eval_batch_size) (\d+)")


def preferences(gpu: str, rows: int, model: str, num_gpus: int = 1) -> Scenario:
    train = {
        "framework": "transformers", "framework_version": "trl 1.16", "precision": "bf16-mixed", "method": "lora",
        "loss": "preference", "micro_batch_size": rows, "sequence_length": 1024, "extra_models": ["reference"],
    }  # fmt: skip
    return Scenario.from_dict({"model": model, "task": "train", "gpu": gpu, "num_gpus": num_gpus, "train": train})


@pytest.mark.parametrize("rows", [2, 6, 16])
@pytest.mark.parametrize(("gpu", "model"), [("rtx-4090", "Qwen/Qwen3-4B"), ("rtx-3060-12gb", "Qwen/Qwen3-4B"),
                                            ("h100", "Qwen/Qwen3-32B")])  # fmt: skip
def test_suggestions_keep_pairs_together(gpu, model, rows):
    scenario = preferences(gpu, rows, model)
    found = suggestions(scenario, estimate(scenario), estimate)
    assert found
    words = [one.change.words for one in found]
    assert all(int(size) % 2 == 0 for one in words for size in SIZE.findall(one)), words
    assert not any("fused-linear" in one for one in words), words


def test_a_plan_keeps_pairs_together():
    found = plan(preferences("rtx-4090", 16, "Qwen/Qwen3-4B"), Wishes("fine-tune"))
    sizes = [one.scenario.train.micro_batch_size for one in found.options]
    assert sizes
    assert all(size % 2 == 0 for size in sizes), sizes
    assert {one.scenario.train.loss for one in found.options} == {"preference"}
