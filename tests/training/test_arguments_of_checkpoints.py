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
