"""Which cell of the table of intervals an estimate asks: by what is stated."""

from __future__ import annotations

from collections import defaultdict

import pytest

from vramwise.estimation import estimate
from vramwise.intervals import Reach, judged_by

STATED = {
    "framework": "pytorch", "framework_version": "torch 2.8, transformers 4.56", "method": "full", "precision": "bf16",
    "optimizer": "adamw", "attention": "sdpa", "checkpointing": "none", "sequence_length": 512,
}  # fmt: skip


def _cells(train: dict[str, object], *, gpus: int = 1) -> dict[str, str]:
    scenario = {"model": "HuggingFaceTB/SmolLM2-135M", "task": "train", "gpu": "A100-80GB", "num_gpus": gpus}
    with judged_by(defaultdict(lambda: Reach(0.1, 0.1))) as asked:
        result = estimate({**scenario, "train": train})
        for name in ("peak_allocated", "peak_reserved"):
            assert result.quantities[name].expected
    return {name: asked[name].cell for name in ("peak_allocated", "peak_reserved")}


def _without(*keys: str) -> dict[str, object]:
    return {key: value for key, value in STATED.items() if key not in keys}


@pytest.mark.parametrize(
    ("train", "grade"),
    [
        (STATED, "in full"),
        (_without("attention"), "mostly"),
        (_without("framework_version"), "mostly"),
        (_without("framework_version", "checkpointing"), "partly"),
        ({**STATED, "framework": "transformers"}, "in full"),  # padded rows: the answer is for the longest
        ({**STATED, "framework": "transformers", "packing": True}, "in full"),
        ({**STATED, "framework": "transformers", "sample_lengths": {"fixed": 512}}, "in full"),
    ],
)
def test_allocated_counts_what_nobody_stated(train, grade):
    assert _cells(train)["peak_allocated"] == f"training allocated, plain, {grade}"


def test_what_is_involved_and_what_is_kept_go_by_versions():
    sharded = {**STATED, "framework": "deepspeed", "zero_stage": 2, "packing": True}
    assert _cells(sharded, gpus=2) == {
        "peak_allocated": "training allocated, involved, torch named",
        "peak_reserved": "training kept, involved, torch named",
    }
    assert _cells(_without("framework_version"))["peak_reserved"] == "training kept, plain, no version named"
