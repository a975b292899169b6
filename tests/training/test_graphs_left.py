"""Checkpointed layers whose modules name a value of their second forward pass (RecurrentGemma's recurrent states)."""

from __future__ import annotations

from vramwise.models import describe
from vramwise.scenario import Scenario
from vramwise.training.job import job_of

CONFIG = {
    "model_type": "recurrent_gemma", "hidden_size": 64, "lru_width": 64, "intermediate_size": 192,
    "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 512, "head_dim": 32,
    "conv1d_width": 4, "attention_window_size": 32, "block_types": ["recurrent", "recurrent", "attention"],
    "hidden_activation": "gelu_pytorch_tanh", "logits_soft_cap": 30.0,
}  # fmt: skip
LEFT = "graphs that modules keep"


def left(tokens=128, **train) -> dict[str, int]:
    settings = {
        "framework": "transformers", "precision": "bf16", "checkpointing": "full", "micro_batch_size": 2,
        "sequence_length": tokens, **train,
    }  # fmt: skip
    scenario = Scenario.from_dict({"model": CONFIG, "task": "train", "train": settings})
    job = job_of(scenario, describe(CONFIG), None)
    return {moment.name: moment.of(LEFT) for moment in job.moments(job.ranks[0])}


def test_they_stay_from_backward_to_the_next_forward_pass() -> None:
    held = left()
    assert held["backward end"] == held["optimizer step"] > 0
    assert held["backward: head"] == held["loss"] == held["forward end"] == 0
    assert 0 < held["backward: layers"] < held["backward end"]


def test_they_grow_with_the_batch() -> None:
    at = [left(tokens)["optimizer step"] for tokens in (128, 256, 384)]
    assert abs((at[2] - at[1]) - (at[1] - at[0])) <= 512  # what is left for each document does not


def test_nothing_is_left_without_a_second_pass_or_where_backward_goes_through_it() -> None:
    assert set(left(checkpointing="none").values()) == {0}
    assert set(left(framework_version="transformers 4.57.6").values()) == {0}  # reentrant


def test_a_frozen_layer_leaves_what_its_adapters_save_on_the_way() -> None:
    adapted, whole = left(method="lora")["optimizer step"], left()["optimizer step"]
    assert 0 < adapted < whole
