"""Weights of ZeRO stage 3 that were freed and wait for a card that is behind its host."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate, model_of
from vramwise.hardware.lookup import find_gpu
from vramwise.result import Quantity
from vramwise.scenario import Scenario
from vramwise.training.job import Job, job_of
from vramwise.training.speed.lag import QUEUE, lag_of_card
from vramwise.training.zero3 import NO_LAG

GIB = 2**30
ZERO_3 = {"framework": "transformers", "framework_version": "transformers 4.40.0, deepspeed 0.14.2, torch 2.2.2",
          "precision": "fp16-master", "optimizer": "adamw", "optimizer_impl": "fused", "attention": "sdpa",
          "zero_stage": 3, "reduce_bucket_size": 500_000_000, "overlap_comm": True, "zero_init": False,
          "stage3_prefetch_bucket_size": 50_000_000, "stage3_param_persistence_threshold": 100_000,
          "checkpointing": "full", "clip_grad_norm": False, "expandable_segments": True}  # fmt: skip


def scenario(tokens: int, batch: int = 1, gpus: int = 8, **changed: Any) -> dict[str, Any]:
    train = {**ZERO_3, "sequence_length": tokens, "micro_batch_size": batch, **changed}
    return {
        "model": "meta-llama/Meta-Llama-3-8B",
        "task": "train",
        "gpu": "A100-80GB",
        "num_gpus": gpus,
        "train": train,
    }


def job(given: dict[str, Any]) -> Job:
    read = Scenario.from_dict(given)
    return job_of(read, model_of(read)[1], find_gpu(given["gpu"]).gpu)


def test_a_layer_takes_as_many_entries_of_the_queue_as_kernels_waits_and_events() -> None:
    asked = job(scenario(2048))
    lag = lag_of_card(asked, asked.ranks[0])
    # by hand: q and o 4,096^2, k and v 4,096 * 1,024, three of the MLP 4,096 * 14,336; norms are too small to be freed
    sizes = [4096 * 4096, 4096 * 1024, 4096 * 1024, 4096 * 4096] + [4096 * 14336] * 3
    assert sorted(lag.sizes) == sorted(2 * size for size in sizes)
    kernels = 38  # of the recorded layer, views apart
    modules = 13  # the layer, attention and its four, MLP, its three and the function, two norms
    assert abs(lag.most - QUEUE // (kernels + modules + len(sizes))) <= 1
    assert lag.expected == lag.most // 2


@pytest.mark.parametrize(
    "given",
    [
        scenario(512),  # gathers take longer than layers
        scenario(2048, gpus=1),
        scenario(2048, zero_stage=2),
        scenario(2048, offload_params="cpu"),
        scenario(2048, checkpointing="none"),  # autograd keeps what was freed
        scenario(2048, attention="flash"),  # the positions of a single row are looked at in every layer
        scenario(2048, attention="flash", framework="deepspeed"),  # by transformers' classes, in any loop
    ],
    ids=["short", "alone", "stage 2", "weights on the host", "views kept", "flash", "flash in a loop of one's own"],
)
def test_nothing_waits_where_the_card_is_not_behind(given: dict[str, Any]) -> None:
    asked = job(given)
    assert lag_of_card(asked, asked.ranks[0]).expected == NO_LAG.expected


@pytest.mark.parametrize(("batch", "active", "reserved"), [(1, 25.95, 34.09), (6, 42.10, 55.73), (12, 63.94, 76.28)])
def test_active_and_reserved_memory_of_published_runs(batch: int, active: float, reserved: float) -> None:
    """gpjt/fine-tune-2024-04 results-no-optimizer-offload-with-gradient-checkpointing-with-expandable-segments.csv; 17,
    8 and 7 % below in active memory and 13, 15 and 4 % in reserved before freed weights counted."""
    found = estimate(scenario(2048, batch)).quantities
    assert found["peak_active"].expected / GIB == pytest.approx(active, rel=0.06)
    assert found["peak_reserved"].expected / GIB == pytest.approx(reserved, rel=0.08)


def test_allocated_memory_is_what_it_was_and_active_memory_is_at_least_that() -> None:
    found: dict[str, Quantity] = dict(estimate(scenario(2048, 6)).quantities)
    assert found["peak_allocated"].expected < found["peak_active"].expected < found["peak_reserved"].expected
    assert found["peak_active"].high >= found["peak_active"].expected
