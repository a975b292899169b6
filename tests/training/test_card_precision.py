"""A training whose precision nobody stated, on cards without bf16: fp16, but for programs that emulate bf16 there."""

from __future__ import annotations

import pytest

from vramwise import estimate

MODEL = "Qwen/Qwen3-0.6B"
TAKEN = "Tesla T4 does not compute in bf16 and no precision is stated: taken in "
EMULATED = "Tesla T4 does not compute in bf16: torch emulates it"


def answered(gpu: str = "t4", **train: object):
    return estimate({"model": MODEL, "task": "train", "gpu": gpu, "train": train}, replays=False)


@pytest.mark.parametrize(
    ("train", "precision", "weights"),
    [
        ({}, "fp16-mixed", "fp32"),
        ({"method": "lora"}, "fp16-mixed", "fp16"),
        ({"framework": "unsloth", "method": "qlora"}, "fp16-mixed", "fp16"),
        ({"framework": "unsloth", "method": "full"}, "fp16-mixed", "fp32"),
        ({"framework": "torchtune"}, "fp16-mixed", "fp32"),
        ({"zero_stage": 2}, "fp16-master", "fp16"),
        ({"framework": "megatron"}, "fp16-master", "fp16"),
    ],
)
def test_what_is_open_is_fp16_and_says_so(train, precision, weights):
    result = answered(**train)
    settings = result.scenario["train"]
    assert (settings["precision"], settings["param_dtype"], settings["compute_dtype"]) == (precision, weights, "fp16")
    assert TAKEN + precision in result.notes
    stated = {"precision": precision, **({"param_dtype": weights} if "method" in train and weights == "fp16" else {})}
    assert result.needed == answered(**train, **stated).needed
    assert answered("rtx-3090", **train).scenario["train"]["compute_dtype"] == "bf16"


def test_sizes_beside_it_know_the_precision():
    asked = {"model": MODEL, "task": "train", "gpu": "t4", "train": {"framework": "torchtune", "micro_batch_size": 2}}
    assert answered(**asked["train"]).quantities["weights"] == answered(framework="torchtune").quantities["weights"]
    assert answered(framework="torchtune").quantities["weights"].expected > 1.9 * answered(
        "rtx-3090", framework="torchtune"
    ).quantities["weights"].expected  # fmt: skip


@pytest.mark.parametrize(
    "train",
    [
        {"precision": "bf16-mixed"},
        {"precision": "bf16"},
        {"framework": "litgpt"},
        {"framework": "axolotl", "method": "lora"},
        {"framework": "ms-swift", "method": "lora"},
        {"framework": "transformers", "framework_version": "trl 1.16"},
        {"framework": "transformers", "framework_version": "trl 0.19.1"},
    ],
)
def test_stated_bf16_and_programs_that_ask_torch_stay_in_bf16_and_say_so(train):
    result = answered(**train)
    assert result.scenario["train"]["compute_dtype"] == "bf16"
    assert EMULATED in result.notes
    assert not any(note.startswith(TAKEN) for note in result.notes)


def test_before_its_configs_set_bf16_trl_is_what_people_state():
    assert answered(framework="transformers", framework_version="trl 0.12").scenario["train"]["compute_dtype"] == "fp16"
