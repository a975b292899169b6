"""What attention takes over sequences that GPUs share, held against torch's own ring and counted by hand.

Live bytes beyond queries, keys, values and the incoming gradient were recorded by tests/training/live_ring.py (torch
2.13). They have a few statistics of 4 bytes a token and head, which are left out here.
"""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.errors import ScenarioError
from vramwise.models import describe
from vramwise.models.autograd.size import evaluate
from vramwise.models.autograd.tensor import Node
from vramwise.scenario import Scenario
from vramwise.training.activations.context_parallel import with_context_parallel
from vramwise.training.activations.recording import recorded
from vramwise.training.job import Job, job_of

TOKENS, WIDTH = 4096, 64
# ranks, heads, groups, in forward, in backward
RECORDED = [(2, 8, 8, 54_919_168, 109_051_904), (8, 8, 8, 105_250_816, 163_577_856), (8, 8, 2, 54_919_168, 51_380_224),
            (4, 16, 2, 84_672_512, 59_768_832)]  # fmt: skip


def job(ranks: int, heads: int = 8, groups: int = 8, **train: Any) -> Job:
    config = {
        "model_type": "llama", "hidden_size": heads * WIDTH, "intermediate_size": 512, "num_hidden_layers": 2,
        "num_attention_heads": heads, "num_key_value_heads": groups, "vocab_size": 1000, "head_dim": WIDTH,
        "max_position_embeddings": TOKENS * 8,
    }  # fmt: skip
    table = {"framework": "pytorch", "precision": "bf16", "sequence_length": TOKENS * ranks, **train}
    found = {"model": config, "task": "train", "num_gpus": ranks, "train": {"context_parallel_size": ranks, **table}}
    scenario = Scenario.from_dict(found)
    return job_of(scenario, describe(config, "tiny"), None)


def attention(made: Job) -> tuple[Node, dict[str, int]]:
    forward = recorded(made.model, made.structure, **{"batch": 1, "sequence": TOKENS})
    layer = next(run for run in with_context_parallel(forward, made.structure).runs if run.layer == 0)
    return next(node for node in layer.nodes if node.primitive.is_attention), made.step_axes


@pytest.mark.parametrize(("ranks", "heads", "groups", "in_forward", "in_backward"), RECORDED)
def test_torchs_ring(ranks: int, heads: int, groups: int, in_forward: int, in_backward: int) -> None:
    node, axes = attention(job(ranks, heads, groups))
    query, others = heads * WIDTH * TOKENS * 2, 2 * groups * WIDTH * TOKENS * 2
    assert evaluate(node.inputs[0].nbytes, axes) == query
    forward = evaluate(node.workspace_bytes, axes) + query  # and the result itself
    assert forward == pytest.approx(in_forward, rel=0.02)
    assert node.backward_workspace_bytes is not None
    backward = evaluate(node.backward_workspace_bytes, axes) + query + others  # and three gradients
    assert backward == pytest.approx(in_backward, rel=0.04)


def test_alone_nothing_goes_round() -> None:
    node, _ = attention(job(1))
    assert node.workspace_bytes == 0


def activations(made: Job) -> int:
    return next(m for m in made.moments(made.ranks[0]) if m.name == "forward end").parts["activations"]


def test_ulysses_keeps_the_result_in_front_of_its_exchange_too() -> None:
    ring, ulysses = (
        activations(job(4, checkpointing="none", context_parallel_kind=kind)) for kind in ("ring", "ulysses")
    )
    assert ulysses - ring == 2 * 8 * WIDTH * TOKENS * 2  # two layers


def test_ulysses_has_few_groups_several_times() -> None:
    """Of 2 groups every rank of 8 has one, as of 8: what the kernel keeps is the same, and products keep neither."""
    few, many = (activations(job(8, 8, n, checkpointing="none", context_parallel_kind="ulysses")) for n in (2, 8))
    assert few == many


def test_ulysses_shares_whole_heads() -> None:
    with pytest.raises(ScenarioError, match=r"train\.context_parallel_size: 16 does not divide 8 attention heads"):
        job(16, context_parallel_kind="ulysses")


def test_frameworks_have_their_own_kind() -> None:
    assert job(2, framework="ms-swift").train.context_parallel_kind == "ulysses"
    assert job(2, framework="torchtitan").train.context_parallel_kind == "ring"
