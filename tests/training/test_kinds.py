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
    ("versions", "named"),
    [
        ("torch 2.8, transformers 4.56", "version named"),
        ("transformers 4.56", "version named"),
        (None, "no version named"),
    ],
)
def test_tensors_of_a_plain_run_go_by_the_versions_that_are_named(versions, named):
    train = _without("framework_version") if versions is None else {**STATED, "framework_version": versions}
    assert _cells(train)["peak_allocated"] == f"training allocated, plain, {named}"


def test_saying_what_is_the_default_changes_no_interval():
    assert _cells(_without("attention", "optimizer", "checkpointing")) == _cells(STATED)


def test_what_is_involved_and_what_is_kept_go_by_versions():
    sharded = {**STATED, "framework": "deepspeed", "zero_stage": 2, "packing": True}
    assert _cells(sharded, gpus=2) == {
        "peak_allocated": "training allocated, involved, torch named",
        "peak_reserved": "training kept, involved, torch named",
    }
    assert _cells(_without("framework_version"))["peak_reserved"] == "training kept, plain, no version named"


def test_what_is_kept_after_samples_of_unsaid_lengths_is_told_apart():
    conversations = {**_without("framework_version"), "framework": "unsloth", "method": "qlora"}
    assert _cells(conversations)["peak_reserved"] == "training kept, unsaid lengths, no version named"
    said = {**conversations, "sample_lengths": {"mean": 200, "spread": 50, "maximum": 400}}
    assert "unsaid" not in _cells(said)["peak_reserved"]
