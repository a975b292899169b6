"""The replay of ZeRO stage 3: blocks on DeepSpeed's streams, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate
from vramwise.models import describe
from vramwise.scenario import Scenario
from vramwise.training.job import Job, job_of
from vramwise.training.reserved_memory.gathers import GATHERING
from vramwise.training.reserved_memory.replay import is_replayed, replay
from vramwise.training.reserved_memory.stage_3 import Stage3
from vramwise.training.reserved_memory.traces import Memory

RANKS, MIB = 4, 2**20
MODEL = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 16384, "max_position_embeddings": 512,
}  # fmt: skip


def job(**train: Any) -> Job:
    table = {"framework": "deepspeed", "precision": "bf16-master", "sequence_length": 256, "zero_stage": 3, **train}
    scenario = Scenario.from_dict({"model": MODEL, "task": "train", "num_gpus": RANKS, "train": table})
    return job_of(scenario, describe(MODEL, "tiny"), None)


def around(**train: Any) -> Stage3:
    made = job(**train)
    return Stage3(Memory(None), made.model, made.structure, made.ranks[0])


def test_loading_takes_a_ranks_share_and_the_bucket() -> None:
    """Weights, gradients, master copy and two states: 2 + 2 + 12 bytes a value of a rank, zeros for a first step."""
    stage = around(reduce_bucket_size=1_000_000)
    stage.load()
    each = sum(stage.own)
    assert each == pytest.approx(describe(MODEL, "tiny").num_parameters / RANKS, rel=0.001)
    assert stage.memory.allocated == pytest.approx(16 * each + 2_000_000, abs=2 * MIB)
    assert stage.memory.peak_allocated == pytest.approx(20 * each + 2_000_000, abs=2 * MIB)


def test_an_optimizer_on_the_host_leaves_the_weights_and_the_bucket() -> None:
    """DeepSpeed 0.14.2 and 0.19 stage3.py: master weights, states and the gradients' partition are where `self.device`
    is, the CPU."""
    stage = around(reduce_bucket_size=1_000_000, offload_optimizer="cpu")
    stage.load()
    assert stage.memory.peak_allocated == stage.memory.allocated
    assert stage.memory.allocated == pytest.approx(2 * sum(stage.own) + 2_000_000, abs=2 * MIB)
    stage.step()
    assert stage.memory.peak_allocated == stage.memory.allocated


def test_sub_groups_are_stepped_one_by_one() -> None:
    alone, several = around(), around(sub_group_size=1_000_000)
    assert len(alone.sub_groups) == 1 < len(several.sub_groups)
    assert sum(several.sub_groups) == alone.sub_groups[0]


def test_what_is_gathered_lies_on_a_stream_of_its_own() -> None:
    stage = around(stage3_max_live_parameters=0, stage3_max_reuse_distance=0, stage3_prefetch_bucket_size=0)
    stage.load()
    before = stage.memory.reserved
    for index in range(6):
        stage.before_forward(index)
        stage.after_forward(index)
    stage.forward_over()
    stage.memory.settle()
    most = max(stage.kept.forward.values())
    assert before + most <= stage.memory.reserved <= before + 3 * most + 40 * MIB
    free = stage.memory.reserved - stage.memory.allocated
    stage.memory.hold(most // 2)  # on the compute stream
    assert stage.memory.reserved - stage.memory.allocated >= free - 20 * MIB
    stage.memory.hold(most // 2, GATHERING)
    assert stage.memory.reserved - stage.memory.allocated < free


@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("accumulation", [1, 4])
def test_steps_are_played_with_every_block_let_go(checkpointing: str, accumulation: int) -> None:
    made = job(checkpointing=checkpointing, gradient_accumulation_steps=accumulation)
    found = replay(made.model, made.structure, 1, 256, False, 0, placement=made.ranks[0])
    again = replay(made.model, made.structure, 2, 256, False, 0, placement=made.ranks[0])
    assert found.allocated <= found.reserved
    assert found.allocated < again.allocated


@pytest.mark.parametrize(
    ("train", "described"),
    [
        ({}, True), ({"expandable_segments": True}, True), ({"zero_stage": 2}, True), ({"method": "lora"}, False),
        ({"offload_optimizer": "cpu"}, True), ({"offload_optimizer": "cpu", "offload_params": "cpu"}, False),
        ({"optimizer": "lion"}, False), ({"zero_hpz_partition_size": 2}, False),
    ],
)  # fmt: skip
def test_which_settings_are_played(train: dict[str, Any], described: bool) -> None:
    made = job(**train)
    assert is_replayed(made.train, made.ranks[0]) == described


def test_the_answer_holds_it() -> None:
    table = {"framework": "deepspeed", "zero_stage": 3, "sequence_length": 256}
    found = estimate({"model": MODEL, "task": "train", "num_gpus": RANKS, "gpu": "a100", "train": table}).quantities
    assert found["peak_allocated"].expected < found["peak_reserved"].expected <= found["peak_reserved"].high


LONG = {"framework": "deepspeed", "framework_version": "deepspeed 0.19.2, torch 2.13.0, transformers 5.14.1",
        "precision": "bf16-master", "zero_stage": 3, "offload_optimizer": "cpu", "zero_init": False,
        "overlap_comm": True, "contiguous_gradients": True, "checkpointing": "full", "attention": "flash",
        "kernels": ["liger"], "loss": "fused-linear"}  # fmt: skip


@pytest.mark.parametrize(("tokens", "reserved"), [(8192, 16.3), (32768, 25.8), (131072, 66.5), (262144, 124.5)])
def test_reserved_memory_of_published_long_contexts(tokens: int, reserved: float) -> None:
    """stas00/ml-engineering insights/when-to-upgrade-gpus: Llama 3.1 8B on eight H200; 20 % below to 7 % above before
    these steps were played."""
    given = {"model": "meta-llama/Llama-3.1-8B", "task": "train", "num_gpus": 8, "gpu": "h200-sxm-141gb",
             "train": {**LONG, "sequence_length": tokens}}  # fmt: skip
    found = estimate(given).quantities["peak_reserved"].expected
    assert found / 2**30 == pytest.approx(reserved, rel=0.05)
