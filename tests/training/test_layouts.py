"""Layouts that cannot run are refused with those that can; all kinds of ranks are computed."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate
from vramwise.errors import ScenarioError, UnsupportedModelError
from vramwise.result import Result

LLAMA, MIXTRAL = "meta-llama/Llama-3.1-8B", "mistralai/Mixtral-8x7B-v0.1"


def answer(model: str = LLAMA, num_gpus: int = 8, **train: Any) -> Result:
    top = {"gpus_per_node": train.pop("gpus_per_node")} if "gpus_per_node" in train else {}
    return estimate({"model": model, "task": "train", "num_gpus": num_gpus, **top, "train": train})


@pytest.mark.parametrize(
    ("num_gpus", "settings", "words"),
    [
        (3, {"tensor_parallel_size": 3}, r"tensor_parallel_size: 3 .* 32 attention heads and 8 .*; expected 1 "
         r"\(no other divides the 3 GPUs too\)$"),
        (64, {"tensor_parallel_size": 64}, r"expected 1, 2, 4, 8$"),
        (64, {"pipeline_parallel_size": 64}, r"64 stages are more than the 32 layers; expected 1, 2, 4, 8, 16, 32$"),
        (8, {"framework": "megatron", "pipeline_parallel_size": 2, "virtual_pipeline_parallel_size": 5,
             "pipeline_schedule": "interleaved-1f1b"}, r"2 stages × 5 .* 32 layers; expected 1, 2, 4, 8, 16$"),
        (4, {"pipeline_parallel_size": 4, "virtual_pipeline_parallel_size": 16,
             "pipeline_schedule": "interleaved-1f1b"}, r"4 stages × 16 .* 32 layers; expected 1, 2, 3, 4, 5, 6, 7, 8$"),
        (4, {"pipeline_parallel_size": 4, "pipeline_layers": [9, 9, 9]},
         r"3 stages of 27 layers .* expected 4 of 32, such as 8, 8, 8, 8$"),
        (4, {"pipeline_parallel_size": 4, "pipeline_layers": [9, 9, 9, 9]}, r"4 stages of 36 layers"),
        (3, {"context_parallel_size": 3}, r"context_parallel_size: 3 .* 2,048 tokens"),
        (8, {"expert_parallel_size": 8}, "needs a model with experts"),
        (16, {"fsdp": "hybrid-shard", "gpus_per_node": 5}, "whole nodes"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_with_what_can(num_gpus: int, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        answer(num_gpus=num_gpus, **settings)


def test_a_sequence_that_ranks_cannot_share_equally_is_refused() -> None:
    """Megatron-LM core 0.14 tensor_parallel/mappings.py _split_along_first_dim asserts that they can."""
    asked = {"model": "gpt2", "task": "train", "num_gpus": 2}
    cut = {"framework": "megatron", "tensor_parallel_size": 2, "sequence_parallel": True}
    assert estimate({**asked, "train": {**cut, "sequence_length": 512}}).quantities
    with pytest.raises(ScenarioError, match="into 2 equal pieces: expected a multiple, such as 512, got 513"):
        estimate({**asked, "train": {**cut, "sequence_length": 513}})
    assert estimate({**asked, "train": {**cut, "sequence_parallel": False, "sequence_length": 513}}).quantities


def test_experts_are_divided_over_ranks_and_not_more() -> None:
    with pytest.raises(ScenarioError, match=r"3 does not divide 8 experts over 12 ranks; expected 1, 2, 4$"):
        answer(MIXTRAL, 12, expert_parallel_size=3)
    assert answer(MIXTRAL, 12, expert_parallel_size=4, precision="bf16").quantities["weights"].expected > 0


def test_every_size_that_is_offered_runs() -> None:
    for size in (1, 2, 4, 8):
        assert answer(num_gpus=64, tensor_parallel_size=size, precision="bf16").ranks


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved-1f1b", "zero-bubble"])
def test_every_stage_is_computed_and_the_worst_is_the_answer(schedule: str) -> None:
    virtual = {"virtual_pipeline_parallel_size": 2} if schedule == "interleaved-1f1b" else {}
    found = answer(framework="megatron", precision="bf16-master", pipeline_parallel_size=4, num_microbatches=8,
                   pipeline_schedule=schedule, **virtual)  # fmt: skip
    assert len(found.ranks) == 4
    assert max(rank.bytes for rank in found.ranks) == found.quantities["total_needed"].expected
    assert max(rank.bytes for rank in found.ranks) == max(phase.bytes for phase in found.phases)


def test_layers_whose_division_is_not_described_are_one_sentence() -> None:
    with pytest.raises(UnsupportedModelError, match=r"tensor parallelism .* internlm2"):
        answer("internlm/internlm2-7b", tensor_parallel_size=2, precision="bf16", sequence_length=1024)


def test_uneven_stages_are_allowed_and_differ() -> None:
    found = answer(num_gpus=3, framework="megatron", precision="bf16-master", pipeline_parallel_size=3)
    assert len({rank.bytes for rank in found.ranks}) == 3


def test_stages_may_be_uneven() -> None:
    even = answer(num_gpus=4, pipeline_parallel_size=4)
    uneven = answer(num_gpus=4, pipeline_parallel_size=4, pipeline_layers=[7, 9, 9, 7])
    assert answer(num_gpus=4, pipeline_parallel_size=4, pipeline_layers=[8, 8, 8, 8]).ranks == even.ranks
    change = [after.bytes - before.bytes for before, after in zip(even.ranks, uneven.ranks, strict=True)]
    assert change[0] < 0 < change[1]
    assert change[3] < 0 < change[2]
    assert change[1] > change[2]  # more micro-batches are in flight on an earlier stage


def test_buckets_are_copies_of_the_gradients_of_the_ranks_own_stage() -> None:
    """DDP over two copies of two stages: each rank has buckets of its stage's gradients, not of the whole model's."""
    found = estimate({
        "model": "meta-llama/Llama-2-7b-hf", "task": "train", "num_gpus": 4,
        "train": {"pipeline_parallel_size": 2, "num_microbatches": 4, "sequence_length": 64},
    })  # fmt: skip
    step = next(phase for phase in found.phases if phase.name == "optimizer step")
    parts = {node.name: node.bytes for node in step.components.children}
    assert parts["gradient buckets"] == pytest.approx(parts["gradients"], rel=1e-4)


@pytest.mark.parametrize(("model", "head"), [("bert-base-uncased", "masked-lm"), ("gpt2", "none")])
def test_stage_3_cuts_models_whose_head_has_no_weights_of_its_own(model: str, head: str) -> None:
    settings = {"framework": "deepspeed", "sequence_length": 64, "head": head}
    stages = [
        estimate({"model": model, "task": "train", "num_gpus": 4, "train": {**settings, "zero_stage": stage}})
        for stage in (0, 3)
    ]
    assert stages[1].quantities["weights"].expected < stages[0].quantities["weights"].expected
