"""Adapters on Megatron's experts: a pair of matrices for each of a rank's experts, beside grouped products."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.models import describe
from vramwise.models.autograd.size import evaluate
from vramwise.scenario import Scenario
from vramwise.training.activations.sizes import step_shape
from vramwise.training.job import Job, job_of

HIDDEN, INNER, EXPERTS, CHOSEN, LAYERS, RANK, TOKENS = 256, 128, 8, 2, 3, 4, 512
QWEN: dict[str, Any] = {
    "model_type": "qwen3_moe", "hidden_size": HIDDEN, "intermediate_size": 512, "num_hidden_layers": LAYERS,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, "moe_intermediate_size": INNER,
    "num_experts": EXPERTS, "num_experts_per_tok": CHOSEN, "vocab_size": 1024, "mlp_only_layers": [],
}  # fmt: skip
NAMED = ["experts.gate_up_proj", "experts.down_proj"]
EACH = RANK * (HIDDEN + 2 * INNER) + RANK * (INNER + HIDDEN)
"""Values of one expert's adapters: mcore-bridge 1.6.5 tuners/lora.py, of linear_fc1 and of linear_fc2."""


def job(ranks: int = 1, **train: Any) -> Job:
    settings = {
        "framework": "megatron", "precision": "bf16-master", "attention": "flash", "method": "lora", "lora_rank": RANK,
        "lora_targets": NAMED, "lora_dtype": "bf16", "expert_parallel_size": ranks, "distributed_optimizer": True,
        **train,
    }  # fmt: skip
    scenario = Scenario.from_dict({"model": "x", "task": "train", "num_gpus": ranks, "train": settings})
    return job_of(scenario, describe(QWEN), None)


@pytest.mark.parametrize("ranks", [1, 4])
def test_each_expert_has_matrices_of_its_own_where_it_lies(ranks: int) -> None:
    made = job(ranks)
    states = made.states(made.ranks[0])
    assert states.num_trainable == LAYERS * EXPERTS * EACH
    here = LAYERS * EXPERTS * EACH // ranks
    assert states.adapter_weights == 2 * here
    assert states.gradients == states.master == 4 * here
    assert states.optimizer == 8 * here


def kept(made: Job, layer: int = 1) -> dict[str, int]:
    shape = step_shape(made.model, made.structure, 1, TOKENS, accumulating=True)
    run = [run for run in shape.runs if run.layer is not None][layer]
    found: dict[str, int] = {}
    for tensor in run.kept:
        if tensor.module == "mlp.experts":
            size = evaluate(tensor.nbytes, {"batch": 1, "sequence": TOKENS}) * tensor.count
            found[tensor.role] = found.get(tensor.role, 0) + size
    return found


@pytest.mark.parametrize("dropout", [0.0, 0.05])
def test_adapters_keep_what_their_products_read(dropout: float) -> None:
    """TE 2.8 module/grouped_linear.py: a product whose weights are frozen keeps no input; dropout keeps a mask."""
    rows = TOKENS * CHOSEN
    found = kept(job(lora_dropout=dropout))
    inputs = 2 * rows * (HIDDEN + RANK + INNER + RANK)
    assert found["_grouped_mm.self"] == inputs
    assert found["fused_gate.gate or up"] == 2 * rows * 2 * INNER
    masks = sum(size for role, size in found.items() if role.startswith("native_dropout"))
    assert masks == (rows * (HIDDEN + INNER) if dropout else 0)


def test_nothing_of_frozen_experts_is_kept_but_what_the_gate_reads() -> None:
    found = kept(job(lora_targets=["q_proj"]))
    assert found.get("_grouped_mm.self", 0) == 0
    assert found["fused_gate.gate or up"] == 2 * TOKENS * CHOSEN * 2 * INNER


@pytest.mark.parametrize(
    ("ranks", "exchanged", "ordered"), [(1, 0, 2), (4, 2, 2), (8, 2, 0)]
)  # 8: one expert a rank, in the order of the ranks
def test_rows_are_exchanged_and_sorted_where_there_is_something_to(ranks: int, exchanged: int, ordered: int) -> None:
    """Megatron core 0.16 moe/token_dispatcher.py: all_to_all of one rank gives its input back."""
    made = job(ranks)
    shape = step_shape(made.model, made.structure, 1, TOKENS, accumulating=True)
    run = next(run for run in shape.recorded.runs if run.layer == 1)
    names = [node.op for node in run.nodes]
    assert (names.count("all_to_all"), names.count("sort_chunks")) == (exchanged, ordered)
