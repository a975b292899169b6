"""Cards without bf16: plans, the door and `fit` train in fp16 there, whose weights that train stay in fp32."""

from __future__ import annotations

import shlex

import pytest

from vramwise import estimate
from vramwise.cli.main import main
from vramwise.estimation import described_model
from vramwise.hardware import find_gpu
from vramwise.planner.card_precision import precision_of_the_card
from vramwise.planner.machine import machine_of
from vramwise.planner.option import Wishes
from vramwise.planner.plan import plan
from vramwise.planner.tuning import FULL, LORA, best_step
from vramwise.planner.ways import Question
from vramwise.scenario import Scenario
from vramwise.training.counters import left_out_by_the_card
from vramwise.training_parts import as_resolved

MODEL = "Qwen/Qwen3-0.6B"


def asked(gpu: str, **train: object) -> Scenario:
    return Scenario.from_dict({"model": MODEL, "task": "train", "gpu": gpu, "train": train})


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ({}, {"precision": "fp16-mixed"}),
        ({"method": "lora"}, {"precision": "fp16-mixed", "param_dtype": "fp16"}),
        ({"zero_stage": 2}, {"precision": "fp16-master"}),
        ({"framework": "megatron"}, {"precision": "fp16-master"}),
        (
            {"framework": "transformers", "framework_version": "trl 0.20", "method": "qlora"},
            {"precision": "fp16-mixed", "param_dtype": "fp16"},
        ),
        (
            {"framework": "transformers", "framework_version": "trl 1.16", "method": "qlora"},
            {},
        ),  # its adapters are bf16
        ({"precision": "bf16-mixed"}, {}),
        ({"precision": "fp32"}, {}),
    ],
)
def test_what_is_open_is_fp16_where_the_card_has_no_bf16(train, expected):
    assert precision_of_the_card(asked("t4", **train)) == expected
    assert precision_of_the_card(asked("rtx-3090", **train)) == {}


def test_every_option_for_such_a_card_is_in_fp16_and_fits_when_it_is_asked_for(capsys):
    found = plan(asked("t4", sequence_length=4096), Wishes("fine-tune"))
    assert found.options
    assert any("does not compute in bf16: what is asked and every option is in fp16" in why for why in found.reasons)
    for option in found.options:
        assert option.result.scenario["train"]["compute_dtype"] == "fp16", option.words
        assert main([*shlex.split(option.command)[1:], "--json"]) == 0
        assert estimate(option.scenario).needed == option.result.needed
    capsys.readouterr()


def test_the_door_trains_in_fp16_there():
    question = Question(MODEL, described_model(MODEL)[1], machine_of(gpu="t4"), estimate)
    for method in (FULL, LORA):
        way = best_step(question, method)
        assert way.settings["precision"] == "fp16-mixed"
        assert "--precision" in list(way.flags())
    assert best_step(question, FULL).resolved["param_dtype"] == "fp32"


def test_fp16_is_said_to_be_of_the_same_size_only_where_it_is():
    def said(**train: object) -> str:
        scenario = {"model": MODEL, "task": "train", "gpu": "t4", "train": {"micro_batch_size": 64, **train}}
        return next(one for one in estimate(scenario).verdict.reasons if "does not compute in bf16" in one)

    assert "weights that train stay in fp32" in said(precision="bf16")
    assert "the same sizes" in said(method="lora", precision="bf16")


def test_nobody_is_advised_to_scale_gradients_of_bf16_adapters():
    trl = {"framework": "transformers", "framework_version": "trl 1.16", "precision": "bf16-mixed", "method": "qlora"}
    scenario = Scenario.from_dict({"model": "Qwen/Qwen2.5-7B", "task": "train", "gpu": "t4", "train": {
        **trl, "micro_batch_size": 8, "sequence_length": 1024}})  # fmt: skip
    assert [why for why in left_out_by_the_card(as_resolved(scenario), find_gpu("t4").gpu) if "bf16" in why] == [
        "Tesla T4 does not compute in bf16: torch emulates it"
    ]
