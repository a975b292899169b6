"""GPT-J's and CodeGen's table of sinusoids: one a layer, and since transformers 5.24 one for all."""

from __future__ import annotations

import pytest

from vramwise.models import describe
from vramwise.scenario import Scenario
from vramwise.training.job import job_of
from vramwise.training.layout.parallel import ALONE
from vramwise.training.model_states.states import buffer_bytes

SMALL = {"n_layer": 3, "n_embd": 64, "n_head": 4, "rotary_dim": 8, "n_positions": 256, "vocab_size": 128}


@pytest.mark.parametrize("model_type", ["gptj", "codegen"])
@pytest.mark.parametrize(("version", "tables"), [("5.23", 3), ("5.24", 1)])
def test_layers_share_one_table_since_5_24(model_type: str, version: str, tables: int) -> None:
    model = describe({"model_type": model_type, **SMALL})
    train = {"framework": "transformers", "framework_version": version}
    job = job_of(Scenario.from_dict({"model": "x", "task": "train", "train": train}), model, None)
    assert len(model.buffers) == SMALL["n_layer"]
    assert len(buffer_bytes(model, job.train, ALONE)) == tables
