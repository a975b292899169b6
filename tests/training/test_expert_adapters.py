"""Adapters on experts that are one tensor: the parameters of the states are those that the layers record."""

from __future__ import annotations

from typing import Any

import pytest
from described_types import small_model

from vramwise import estimate
from vramwise.errors import ScenarioError
from vramwise.models import supported_types
from vramwise.models.model import Model
from vramwise.models.step import BlockRun, record_forward
from vramwise.scenario import Scenario
from vramwise.training.answer import job_of
from vramwise.training.model_states.states import model_states
from vramwise.training.recipe.adapters import adapters
from vramwise.training.recipe.settings import execution

MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 224, "num_hidden_layers": 3,
    "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 512, "num_local_experts": 4,
}  # fmt: skip


def trained_bytes(run: BlockRun) -> int:
    weights = {t.storage: t.nbytes for node in run.nodes for t in node.inputs if t.is_parameter and t.requires_grad}
    return sum(int(size) for size in weights.values())  # type: ignore[call-overload]


def with_experts(model_type: str) -> Model | None:
    """A model whose blocks all run on text (Kimi K3's training is not described), where it has such experts."""
    model = small_model(model_type)
    runs = all(block.modality == "text" for block in model.blocks) and model_type != "kimi_k3"
    return model if runs and adapters(model, ("experts",), 8) else None


@pytest.mark.parametrize("model_type", supported_types())
def test_adapters_of_experts_are_counted_as_they_are_recorded(model_type: str) -> None:
    model = with_experts(model_type)
    if model is None:
        return
    train = {"method": "lora", "lora_targets": ["experts"], "precision": "bf16"}
    job = job_of(Scenario.from_dict({"model": "x", "task": "train", "train": train}), model, None)
    forward = record_forward(job.model, execution(job.structure, job.model), batch=2, sequence=128)
    assert (
        sum(trained_bytes(run) for run in forward.runs)
        == 4 * model_states(job.model, job.structure, job.ranks[0]).num_trainable
    )


def estimated(**train: Any) -> Any:
    return estimate({"model": MIXTRAL, "task": "train", "train": {"method": "lora", "sequence_length": 128, **train}})


def test_mixtrals_experts_by_hand() -> None:
    """Gate and up projection have twice the rank, each expert its own: 3 layers, 4 experts, rank 8."""
    by_hand = 3 * (16 * 4 * (64 + 448) + 8 * 4 * (224 + 64))
    assert estimated(lora_targets=["experts"]).model.num_trainable_parameters == by_hand


def test_a_router_and_experts_own_layers_are_refused_with_the_reason() -> None:
    for target in ("gate", "w1", "gate_proj"):
        with pytest.raises(ScenarioError, match=f'"{target}" gets no adapter: .* and peft wraps linear layers'):
            estimated(lora_targets=[target])


def test_targets_that_match_nothing_beside_others_are_said() -> None:
    notes = "; ".join(estimated(lora_targets=["q_proj", "w1"]).notes)
    assert 'lora_targets w1 changed nothing here: "w1" gets no adapter' in notes
    assert "lora_targets" not in "; ".join(estimated(lora_targets=["q_proj", "experts"]).notes)


def test_dense_models_have_no_experts() -> None:
    llama = {**MIXTRAL, "model_type": "llama"}
    with pytest.raises(ScenarioError, match='no module of the model is called "experts"'):
        estimate({"model": llama, "task": "train", "train": {"method": "lora", "lora_targets": ["experts"]}})
