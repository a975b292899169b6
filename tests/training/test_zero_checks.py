"""What ZeRO's stages 1 and 2 take to look at gradients, against DeepSpeed's own (`record_zero_checks.py`)."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from vramwise import estimate
from vramwise.models import describe
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.training.exchange.zero_buffers import _slices
from vramwise.training.job import Job, job_of
from vramwise.training.reserved_memory.replay import is_replayed, replay
from vramwise.training.reserved_memory.stages_1_2 import Stages1And2
from vramwise.training.reserved_memory.traces import Memory

GOLDEN = Path(__file__).parents[1] / "golden" / "zero_checks.csv"
ROWS = list(csv.DictReader(line for line in GOLDEN.read_text("utf-8").splitlines() if not line.startswith("#")))
ROUNDING, SCALARS = 512, 64
BUCKET = 50_000
MODEL = json.loads(ROWS[0]["config"])


def scenario(num_gpus: int = 2, **train: Any) -> Scenario:
    settings = {"framework": "deepspeed", "sequence_length": 8, "reduce_bucket_size": BUCKET, **train}
    return Scenario.from_dict({"model": MODEL, "task": "train", "num_gpus": num_gpus, "train": settings})


def of_row(row: dict[str, str]) -> Result:
    return estimate(
        scenario(
            zero_stage=int(row["stage"]), offload_optimizer=row["offload"], precision=f"{row['dtype']}-master",
            framework_version=f"deepspeed {row['deepspeed']}",
        )
    )  # fmt: skip


def part(result: Result, moment: str, name: str) -> int:
    found = [phase.components.find(name) for phase in result.phases if phase.name == moment]
    return max((node.bytes for node in found if node is not None), default=0)


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: " ".join(row[name] for name in ("deepspeed", "stage", "offload", "dtype"))
)
def test_looking_at_gradients_takes_what_deepspeed_takes(row: dict[str, str]) -> None:
    result = of_row(row)
    away = row["offload"] != "none"
    recorded = int(row["into_partition"]) if away else max(int(row["overflow"]), int(row["norm"]))
    assert recorded - SCALARS <= part(result, "gradient checks", "gradient checks") < recorded + ROUNDING


@pytest.mark.parametrize("offload", ["none", "cpu"])
def test_stage_1_has_all_gradients_until_backward_is_over_wherever_its_optimizer_is(offload: str) -> None:
    row = next(row for row in ROWS if (row["stage"], row["offload"]) == ("1", offload))
    held, tensors = part(of_row(row), "backward end", "gradients"), len(describe(MODEL).parameters)
    assert int(row["gradients"]) <= held < int(row["gradients"]) + tensors * ROUNDING
    assert offload == "none" or part(of_row(row), "optimizer step", "gradients") == 0


def test_a_gradient_that_no_bucket_holds_lies_beside_it_while_it_is_looked_at() -> None:
    row = next(row for row in ROWS if (row["stage"], row["offload"]) == ("2", "cpu"))
    assert part(of_row(row), "gradient checks", "gradients") == int(row["gradients"])


def test_master_weights_come_back_in_fp32_before_0_17() -> None:
    def returned(version: str) -> int:
        settings = {"zero_stage": 2, "offload_optimizer": "cpu", "precision": "bf16-master"}
        found = estimate(scenario(framework_version=f"deepspeed {version}", **settings))
        return part(found, "optimizer step", "weights on their way back")

    assert returned("0.16.9") == pytest.approx(4 * describe(MODEL).num_parameters / 2, rel=0.01)
    assert returned("0.17.0") == 0


@pytest.mark.parametrize(
    ("numels", "ranks", "most"),
    [([10, 2, 10], 2, [10, 1, 10]), ([10, 2, 10], 1, [10, 2, 10]), ([22], 4, [6]), ([3, 8, 1], 4, [3, 3, 1])],
)
def test_a_rank_has_the_part_of_a_tensor_that_lies_in_its_slice(numels: list[int], ranks: int, most: list[int]) -> None:
    assert _slices(numels, ranks) == most


def job(**train: Any) -> Job:
    settings = {"precision": "bf16-master", "sequence_length": 128, "reduce_bucket_size": 200_000, **train}
    return job_of(scenario(**settings), describe(MODEL), None)


@pytest.mark.parametrize("offload", ["none", "cpu"])
@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("overlap", [False, True])
def test_steps_are_played_with_every_block_let_go(stage: int, offload: str, accumulation: int, overlap: bool) -> None:
    made = job(
        zero_stage=stage, offload_optimizer=offload, gradient_accumulation_steps=accumulation, overlap_comm=overlap,
        checkpointing="full",
    )  # fmt: skip
    assert is_replayed(made.train, made.ranks[0])
    accumulating = accumulation > 1
    found = replay(made.model, made.structure, 1, 128, accumulating, 0, placement=made.ranks[0])
    steady = max(moment.total for moment in made.moments(made.ranks[0]))
    assert found.allocated <= found.reserved
    assert found.allocated == pytest.approx(steady, rel=0.06)
    longer = replay(made.model, made.structure, 64, 128, accumulating, 0, placement=made.ranks[0])
    assert found.allocated < longer.allocated


def test_loading_takes_all_weights_and_a_ranks_share_of_what_the_optimizer_has() -> None:
    made = job(zero_stage=2)
    ranks = Stages1And2(Memory(None), made.model, made.structure, made.ranks[0])
    ranks.load()
    numel = describe(MODEL).num_parameters
    assert ranks.memory.allocated == pytest.approx(numel * (2 + 4 / 2), rel=0.01)
