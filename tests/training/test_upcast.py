"""LLaMA-Factory loads weights that train onto the GPU and makes them fp32 there, before ZeRO cuts anything."""

from __future__ import annotations

from vramwise import estimate
from vramwise.result import Result

VALUES = 7_615_616_512  # Qwen2.5-7B
LARGEST = 152_064 * 3_584  # its output layer, the last but a norm


def answered(**said: object) -> Result:
    train = {"framework": "llamafactory", "micro_batch_size": 1, "sequence_length": 512, **said}
    return estimate({"model": "Qwen/Qwen2.5-7B", "task": "train", "gpu": "4090", "num_gpus": 8, "train": train})


def of_moment(result: Result, name: str) -> int:
    return sum(phase.components.find("whole weights").bytes for phase in result.phases if phase.name == name)


def test_weights_are_fp32_on_the_gpu_before_zero_2_cuts_the_states() -> None:
    """The old tensor of the last large weight is there beside all the new ones."""
    result = answered(zero_stage=2, offload_optimizer="cpu")
    assert result.peak_phase == "upcast"
    weights = result.quantities["weights"].expected + of_moment(result, "upcast")
    assert 4 * VALUES <= weights - 2 * LARGEST < 4.01 * VALUES


def test_a_model_that_steps_but_cannot_be_loaded_does_not_fit() -> None:
    verdict = answered(zero_stage=2, offload_optimizer="cpu").verdict
    assert verdict is not None
    assert not verdict.fits
    assert verdict.probability < 0.05


def test_stage_3_and_other_frameworks_leave_weights_as_they_are_loaded() -> None:
    assert answered(zero_stage=3, offload_optimizer="cpu").peak_phase != "upcast"
    phases = answered(zero_stage=2, framework="transformers").phases
    assert "upcast" not in [phase.name for phase in phases]


def test_adapters_are_cast_alone() -> None:
    result = answered(zero_stage=2, method="lora", lora_targets="all-linear")
    assert of_moment(result, "upcast") < 2**28
