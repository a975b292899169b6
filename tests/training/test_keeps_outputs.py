"""Loops that name the model's outputs keep the logits through backward."""

from __future__ import annotations

from test_replay import job

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


def test_torchtitans_loop_lets_its_logits_go_before_backward_since_june_2024():
    """torchtitan #391, train.py."""
    titan = {"framework": "torchtitan", "method": "full", "precision": "bf16", "checkpointing": "none"}
    early, late = ({**titan, "framework_version": f"torchtitan of {month}"} for month in ("2024-05", "2024-07"))
    assert _peak(**early) == _peak(**early, keeps_outputs=True) > _peak(**early, keeps_outputs=False)
    assert _peak(**late) == _peak(**late, keeps_outputs=False)


def test_workers_of_reinforcement_learning_return_probabilities():
    assert _peak(extra_models=["reference"]) == _peak(extra_models=["reference"], keeps_outputs=False)


def _reserved(**more: object) -> float:
    train = {**LOOP, **more}
    result = estimate({"model": "HuggingFaceTB/SmolLM2-1.7B", "task": "train", "gpu": "T4", "train": train})
    return result.quantities["peak_reserved"].expected


def test_logits_of_the_last_step_take_room_beside_the_next_ones():
    """Forward finds them there and makes its own in segments beside them; a function's variables are gone by then."""
    assert _reserved(keeps_outputs=False) <= _reserved(step_function=True) < _reserved()


def test_the_loss_of_the_next_pass_stands_beside_the_logits_of_the_last():
    """Backward, the peak here, has its own logits in either case."""
    assert _peak(step_function=True) == _peak()
    moments = [_moment(step_function=step_function) for step_function in (False, True)]
    assert moments[0] - moments[1] == LOGITS


def test_a_function_of_several_micro_batches_names_those_of_the_one_before():
    assert _moment(step_function=True, gradient_accumulation_steps=2) - _moment(step_function=True) >= LOGITS


def test_logits_that_became_fp32_in_their_place_are_what_outputs_name():
    old = {"framework_version": "torch 2.4, transformers 4.44", "loss_upcast": True}
    assert _peak(**old) - _peak(**old, keeps_outputs=False) in (0, 2 * LOGITS)


def test_fused_linear_makes_no_logits_that_could_be_named():
    assert _peak(loss="fused-linear") == _peak(loss="fused-linear", keeps_outputs=False)


def _moment(**more: object) -> int:
    """Bytes while the loss runs."""
    asked = job({"model": "HuggingFaceTB/SmolLM2-1.7B", "task": "train", "gpu": "T4", "train": {**LOOP, **more}})
    return next(m.total for m in asked.moments(asked.ranks[0]) if m.name == "loss")
