"""ZeRO's gradient buffers, against DeepSpeed's own (`record_zero_buckets.py` made the golden file)."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from vramwise import estimate
from vramwise.models import describe
from vramwise.models.blocks import Parameter
from vramwise.models.model import Model
from vramwise.result import Result
from vramwise.training.recipe.zero import largest_sub_group

GOLDEN = Path(__file__).parents[1] / "golden" / "zero_buckets.csv"
ROWS = list(csv.DictReader(line for line in GOLDEN.read_text("utf-8").splitlines() if not line.startswith("#")))
ROUNDING = 512
N = 8_030_261_248  # parameters of Llama 3.1 8B


def answer(num_gpus: int = 2, model: Any = "llama-3.1-8b", **train: Any) -> Result:
    settings = {"framework": "deepspeed", "precision": "bf16-master", **train}
    return estimate({"model": model, "task": "train", "num_gpus": num_gpus, "train": settings})


def part(result: Result, moment: str, name: str) -> int:
    node = next(phase for phase in result.phases if phase.name == moment).components.find(name)
    return node.bytes if node is not None else 0


def as_registered(model: Model) -> list[Parameter]:
    """Weights in the order in which Llama's class makes them: a layer's norms come last."""
    last = model.num_layers
    places = {"embedding": -1, "norm": last, "head": last + 1}
    return sorted(model.parameters, key=lambda p: (places[p.part] if p.layer is None else p.layer, p.part == "norm"))


@pytest.mark.parametrize("row", ROWS, ids=[f"stage {row['stage']} {row['settings']}" for row in ROWS])
def test_buckets_and_partitions_are_deepspeeds(row: dict[str, str]) -> None:
    config, settings = json.loads(row["config"]), json.loads(row["settings"])
    found = answer(model=config, zero_stage=int(row["stage"]), sequence_length=8, **settings)
    for moment, column in (("forward end", "buckets_forward"), ("backward: layers", "buckets_backward")):
        recorded, count = int(row[column]), 2 if settings.get("overlap_comm") and row["stage"] != "3" else 1
        assert recorded <= part(found, moment, "gradient buckets") < recorded + count * ROUNDING
    if row["stage"] == "3":
        tensors = len(describe(config).parameters)
        held = part(found, "forward end", "gradients")
        assert int(row["gradients"]) <= held < int(row["gradients"]) + tensors * ROUNDING
        sizes = [-(-parameter.numel // 2) for parameter in as_registered(describe(config))]
        recorded_groups = [int(size) for size in row["sub_groups"].split()]
        assert largest_sub_group(sizes, settings.get("sub_group_size", 10**9)) == max(recorded_groups)


def test_a_bucket_is_copied_where_its_gradients_go_to_several_ranks() -> None:
    """5 · 10^8 values of 2 bytes, in stage 3 even for a single rank; not where every rank gets all of them."""
    assert part(answer(zero_stage=2), "backward end", "reduce-scatter") == pytest.approx(1e9, rel=1e-6)
    assert part(answer(1, zero_stage=2), "backward end", "reduce-scatter") == 0
    assert part(answer(zero_stage=2, reduce_scatter=False), "backward end", "reduce-scatter") == 0
    assert part(answer(1, zero_stage=3), "backward end", "reduce-scatter") == pytest.approx(1e9, rel=1e-6)


def test_a_gradient_that_no_bucket_holds_waits_for_the_next_one() -> None:
    small = answer(zero_stage=2, reduce_bucket_size=1_000_000)
    assert part(small, "backward: layers", "reduce-scatter") == pytest.approx(2 * (1e6 + 14336 * 4096), rel=1e-3)


def test_trainers_auto_follows_the_hidden_size_where_nothing_is_said() -> None:
    auto = answer(zero_stage=3, framework="transformers")
    assert part(auto, "load", "gradient buckets") == 0
    assert part(auto, "loss", "gradient buckets") == 2 * 4096 * 4096
    assert part(answer(zero_stage=3), "loss", "gradient buckets") == pytest.approx(1e9, rel=1e-6)


def test_stage_1_offloads_through_a_buffer_of_the_largest_weight() -> None:
    found = answer(zero_stage=1, offload_optimizer="cpu")
    assert part(found, "loss", "gradient buckets") == 2 * 128_256 * 4096


def test_a_sub_group_at_a_time_is_joined_and_stepped() -> None:
    whole, cut = answer(zero_stage=3), answer(zero_stage=3, sub_group_size=100_000_000)
    largest = 128_256 * 4096 // 2  # of two ranks; the embedding alone fills a group, and what follows is no larger
    assert part(cut, "optimizer step", "fp32 gradients") == pytest.approx(4 * largest, rel=0.01)
    assert part(whole, "optimizer step", "fp32 gradients") > 3.5 * 4 * largest


def test_deepspeed_without_a_precision_keeps_16_bit_weights_and_an_fp32_copy() -> None:
    settings = {"framework": "deepspeed", "zero_stage": 2}
    found = estimate({"model": "llama-3.1-8b", "task": "train", "num_gpus": 2, "train": settings})
    assert found.scenario["train"]["precision"] == "bf16-master"


def test_stage_1_keeps_all_gradients_until_backward_ends_but_under_overlap_comm() -> None:
    whole, overlapped = answer(8, zero_stage=1), answer(8, zero_stage=1, overlap_comm=True)
    both = answer(8, zero_stage=1, overlap_comm=True, gradient_accumulation_steps=2)
    assert part(whole, "backward end", "gradients") == pytest.approx(2 * N, rel=0.001)
    assert part(whole, "backward end", "gradients as one") == pytest.approx(2 * N / 8, rel=0.001)
    assert part(overlapped, "backward end", "gradients") == pytest.approx(2 * N / 8, rel=0.001)
    assert part(both, "forward end", "gradients") == pytest.approx(2 * N, rel=0.001)
    assert part(whole, "clipping", "gradients") == part(overlapped, "clipping", "gradients")


def test_stage_2_has_a_partition_for_the_sum_and_one_for_the_micro_batch() -> None:
    once, twice = answer(8, zero_stage=2), answer(8, zero_stage=2, gradient_accumulation_steps=4)
    for moment, count in (("backward: layers", 2), ("backward end", 2), ("clipping", 1)):
        assert part(twice, moment, "gradients") >= count * 2 * N / 8
        assert part(once, moment, "gradients") == pytest.approx(part(twice, moment, "gradients") / count, rel=0.3)
    wide = answer(8, zero_stage=2, gradient_accumulation_steps=4, grad_dtype="fp32")
    assert part(wide, "backward end", "gradients") == pytest.approx(4 * N / 8, rel=0.001)


def test_stage_1_with_fp32_gradients_keeps_them_whole_from_the_start() -> None:
    found = answer(8, zero_stage=1, grad_dtype="fp32")
    assert part(found, "forward end", "gradients") == pytest.approx(4 * N, rel=0.001)
    assert part(found, "optimizer step", "fp32 gradients") == 0
