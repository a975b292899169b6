"""Megatron's DistributedDataParallel: buffers beside weights that are there, and what the allocator keeps of both."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate
from vramwise.models import describe
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.training.answer import fullest_rank
from vramwise.training.job import Job, job_of
from vramwise.training.model_states.main_buffers import main_buffers
from vramwise.training.reserved_memory.megatron import is_described
from vramwise.training.reserved_memory.replay import is_replayed, replay, runs_one_by_one
from vramwise.units import MIB

HIDDEN, INNER, LAYERS, ROWS = 512, 2048, 4, 4096
LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
    "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": ROWS, "tie_word_embeddings": False,
}  # fmt: skip
VALUES = LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * INNER) + 2 * ROWS * HIDDEN + (2 * LAYERS + 1) * HIDDEN
EXPERTS: dict[str, Any] = {
    **LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2,
}  # fmt: skip
OF_EXPERTS = LAYERS * 4 * 3 * HIDDEN * INNER


def scenario(model: dict[str, Any] = LLAMA, gpus: int = 1, **train: Any) -> dict[str, Any]:
    settings = {
        "framework": "megatron", "precision": "bf16-master", "distributed_optimizer": True, "sequence_length": 16,
        "attention": "flash", **train,
    }  # fmt: skip
    return {"model": model, "task": "train", "num_gpus": gpus, "train": settings}


def job(table: dict[str, Any]) -> Job:
    return job_of(Scenario.from_dict(table), describe(table["model"]), None)


def moment(found: Result, name: str) -> dict[str, int]:
    phase = next((phase for phase in found.phases if phase.name == name), None)
    return {} if phase is None else {node.name: node.bytes for node in phase.components.children}


def test_weights_are_there_twice_beside_their_main_gradients() -> None:
    """core 0.16 distributed/param_and_grad_buffer.py: param_data and grad_data, then each weight is copied."""
    parts = moment(estimate(scenario()), "wrapping")
    assert parts["weights"] == parts["weights before their buffer"] == 2 * VALUES
    assert parts["gradients"] == 4 * VALUES
    assert "library workspace" not in parts


def test_experts_have_a_buffer_of_their_own_which_is_made_last() -> None:
    found = estimate(scenario(EXPERTS))
    assert moment(found, "wrapping")["weights before their buffer"] == 2 * OF_EXPERTS
    made = job(scenario(EXPERTS, gpus=2, expert_parallel_size=2))
    first, last = main_buffers(made.model, made.structure, made.ranks[0])
    assert (first.of_experts, last.of_experts) == (False, True)
    assert (last.weights, last.gradients) == (OF_EXPERTS, 2 * OF_EXPERTS)


@pytest.mark.parametrize("train", [{"distributed_optimizer": False}, {"fsdp": "full-shard"}, {"optimizer": "muon"}])
def test_weights_that_stay_where_they_are_are_not_there_twice(train: dict[str, Any]) -> None:
    assert moment(estimate(scenario(gpus=2, **train)), "wrapping") == {}


def test_of_adapters_the_base_is_never_there_twice() -> None:
    parts = moment(estimate(scenario(method="lora", lora_targets=["q_proj"], lora_rank=4)), "wrapping")
    assert parts["weights before their buffer"] == parts["adapters"] == 4 * LAYERS * 2 * 4 * HIDDEN


def replayed(table: dict[str, Any]) -> tuple[int, int]:
    made = job(table)
    rank = fullest_rank(made, None).rank
    assert is_replayed(made.train, rank)
    found = replay(made.model, made.structure, 1, made.train.sequence_length, True, 0, None, (), rank)
    return found.allocated, found.reserved


def test_an_offloading_rank_never_needs_more_than_its_wrapping() -> None:
    allocated, reserved = replayed(scenario(offload_optimizer="cpu", precision_aware_optimizer=True))
    assert 8 * VALUES <= allocated < 8 * VALUES + 2 * MIB
    assert allocated <= reserved < allocated + 40 * MIB  # segments of 2 MiB and more


def test_states_take_the_room_that_unwrapped_weights_left() -> None:
    allocated, reserved = replayed(scenario())
    dummies = 2 * HIDDEN * (4 * HIDDEN + 3 * INNER)  # one for each shape of a product's weight
    assert 18 * VALUES + dummies < allocated < 18 * VALUES + dummies + 8 * MIB
    assert reserved < allocated + 60 * MIB


def test_where_the_replay_stands() -> None:
    for train, expected in (({}, True), ({"precision": "fp8-mixed"}, False), ({"fsdp": "full-shard"}, False)):
        made = job(scenario(gpus=2, **train))
        assert is_described(made.train, made.ranks[0]) is expected
    made = job(scenario(gpus=2, pipeline_parallel_size=2))
    assert not is_replayed(made.train, made.ranks[0])
    for ties in (False, True):
        made = job(scenario({**LLAMA, "tie_word_embeddings": ties}))
        assert runs_one_by_one(made.shape(made.ranks[0]), made.model, made.train) is not ties
