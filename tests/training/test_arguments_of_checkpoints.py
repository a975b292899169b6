"""What a checkpointed layer keeps is what it was called with, and nothing that it makes itself."""

from __future__ import annotations

import pytest

from vramwise.models import describe
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.training.activations.sizes import step_shape
from vramwise.training.job import job_of

MADE_INSIDE = {
    "swiss-ai/Apertus-8B-Instruct-2509": "where.condition",  # modeling_apertus.py XIELUActivation: torch.where(x > 0)
    "google-t5/t5-base": "embedding.indices",  # modeling_t5.py compute_bias: buckets of distances
}


def roles(name, checkpointing):
    train = {"checkpointing": checkpointing, "sequence_length": 64, "micro_batch_size": 2}
    found = resolve(name)
    scenario = Scenario.from_dict({"model": name, "task": "train", "train": train})
    job = job_of(scenario, describe(found.config, found.id), None)
    shape = step_shape(job.model, job.structure, 2, 64, accumulating=False)
    return {kept.role for run in shape.runs if run.layer is not None for kept in run.kept}


@pytest.mark.parametrize("name", MADE_INSIDE)
def test_what_a_layer_makes_is_made_again(name):
    assert MADE_INSIDE[name] in roles(name, "none")
    assert MADE_INSIDE[name] not in roles(name, "full")


GLM = {
    "model_type": "glm_moe_dsa", "vocab_size": 1024, "hidden_size": 256, "intermediate_size": 512,
    "moe_intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "q_lora_rank": 128, "kv_lora_rank": 64,
    "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "index_n_heads": 4, "index_head_dim": 64,
}  # fmt: skip


def kept_at_the_loss(types, index_topk):
    train = {"checkpointing": "full", "sequence_length": 512, "micro_batch_size": 2, "precision": "bf16"}
    scenario = Scenario.from_dict({"model": "x", "task": "train", "train": train})
    own = {"num_hidden_layers": len(types), "indexer_types": types, "index_topk": index_topk,
           "mlp_layer_types": ["dense"] * 2 + ["sparse"] * (len(types) - 2)}  # fmt: skip
    job = job_of(scenario, describe({**GLM, **own}), None)
    return {moment.name: moment for moment in job.moments(job.ranks[0])}["loss"].total


@pytest.mark.parametrize(
    ("types", "indexers_read"),
    [
        (["full", "shared", "shared", "shared"], 1),
        (["full", "full", "shared", "shared", "full", "shared"], 3),
        (["full", "shared", "full", "shared", "full", "shared", "full", "shared", "full"], 4),
    ],
)
def test_what_an_indexer_picked_is_kept_once_for_all_layers_that_are_handed_it(types, indexers_read):
    few, more = (kept_at_the_loss(types, most) for most in (64, 128))
    assert more - few == indexers_read * 2 * 512 * (128 - 64) * 4


def test_an_indexer_picks_no_more_tokens_than_there_are():
    types = ["full", "shared", "shared"]
    assert kept_at_the_loss(types, 1024) == kept_at_the_loss(types, 512) > kept_at_the_loss(types, 256)
