"""Loops that name the model's outputs keep the logits through backward."""

from __future__ import annotations

from vramwise.estimation import estimate

LOOP = {
    "framework": "pytorch", "framework_version": "torch 2.10, transformers 5.0", "method": "lora", "precision": "fp16",
    "attention": "sdpa", "micro_batch_size": 4, "sequence_length": 1024, "checkpointing": "full",
}  # fmt: skip
LOGITS = 4 * 1024 * 49152 * 2


def _peak(**more: object) -> float:
    train = {**LOOP, **more}
    result = estimate({"model": "HuggingFaceTB/SmolLM2-1.7B", "task": "train", "gpu": "T4", "train": train})
    return result.quantities["peak_allocated"].expected


def test_a_script_names_its_outputs_unless_it_says_otherwise():
    assert _peak() == _peak(keeps_outputs=True)
    assert _peak() - _peak(keeps_outputs=False) == LOGITS


def test_trainer_returns_the_loss_alone():
    assert _peak(framework="transformers") == _peak(framework="transformers", keeps_outputs=False)


def test_workers_of_reinforcement_learning_return_probabilities():
    assert _peak(extra_models=["reference"]) == _peak(extra_models=["reference"], keeps_outputs=False)
