"""Weights that want a gradient and get none: an indexer's, of which only indices come."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.models import describe
from vramwise.optimizers import RULES, TrainedTensor, kept_bytes, step_transient_bytes
from vramwise.scenario import Scenario
from vramwise.training.job import job_of
from vramwise.training.model_states.states import ModelStates, model_states

CONFIG = {
    "model_type": "deepseek_v32", "vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1024,
    "moe_intermediate_size": 256, "num_hidden_layers": 3, "first_k_dense_replace": 1, "num_attention_heads": 8,
    "num_key_value_heads": 8, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
    "q_lora_rank": 256, "kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64,
    "index_n_heads": 8, "index_head_dim": 128,
}  # fmt: skip
ALONE: dict[str, Any] = {"precision": "bf16"}
SHARDED: dict[str, Any] = {"precision": "bf16", "fsdp": "full-shard"}


def states(num_gpus: int = 1, **train: Any) -> tuple[ModelStates, int, int]:
    """States of a rank, and how many values train in the indexers and in all."""
    scenario = Scenario.from_dict({"model": "x", "task": "train", "num_gpus": num_gpus, "train": train})
    job = job_of(scenario, describe(CONFIG), None)
    scoring = sum(p.numel for p in job.model.parameters if ".indexer." in p.name)
    return model_states(job.model, job.structure, job.ranks[0]), scoring, job.model.num_parameters


def test_an_indexer_is_stored_and_is_all_that_no_gradient_reaches() -> None:
    model = describe(CONFIG)
    assert model.without_gradient == {p.name for p in model.parameters if ".indexer." in p.name} != set()
    found, _, every = states(**ALONE)
    assert (found.weights, found.num_trainable) == (pytest.approx(2 * every, rel=0.001), every)


@pytest.mark.parametrize(
    ("num_gpus", "settings"),
    [(1, ALONE), (4, ALONE), (4, {**SHARDED, "fsdp_version": 2}), (1, {**ALONE, "optimizer": "paged-adamw"})],
)
def test_where_each_tensor_has_its_own_gradient_an_indexer_has_none_and_no_states(
    num_gpus: int, settings: dict[str, Any]
) -> None:
    found, scoring, every = states(num_gpus, **settings)
    shards = num_gpus if "fsdp" in settings else 1
    reached, state = (every - scoring) // shards, 4 if "optimizer" in settings else 2
    assert found.gradients == pytest.approx(2 * reached, rel=0.002)
    assert found.optimizer + found.paged_optimizer == pytest.approx(2 * state * reached, rel=0.002)


@pytest.mark.parametrize(
    "settings",
    [{**SHARDED, "fsdp_version": 1}, {"precision": "bf16-master", "zero_stage": 2, "framework": "deepspeed"}],
)
def test_one_piece_for_all_that_trains_has_room_for_an_indexer(settings: dict[str, Any]) -> None:
    found, _, every = states(4, **settings)
    assert found.optimizer >= 2 * 2 * every // 4


def test_adapters_of_an_indexer_are_not_stepped() -> None:
    named = {"method": "lora", "lora_targets": ["indexer.wq_b"], "precision": "bf16"}
    found, _, _ = states(**named)
    assert found.adapter_weights > 0
    assert (found.gradients, found.optimizer, found.num_trained_tensors) == (0, 0, 0)


@pytest.mark.parametrize("optimizer", sorted(RULES))
def test_no_optimizer_keeps_or_makes_anything_for_a_tensor_without_gradient(optimizer: str) -> None:
    tensor = TrainedTensor("layers.0.indexer.wq_b.weight", (1024, 4096), "attention", True, 2, 0, 0)
    assert sum(kept_bytes(optimizer, tensor)) == 0
    assert step_transient_bytes(optimizer, "foreach", [tensor]) == 0
