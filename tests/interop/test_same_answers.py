"""One question has one answer: a scenario that leaves a framework's settings open, and the framework's own command."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from vramwise import estimate
from vramwise.cli.screens.overview import overview
from vramwise.estimation import described_model
from vramwise.interop.launch import read_command
from vramwise.result import Result

MODEL = "meta-llama/Llama-3.1-8B"
SIZES = {"micro_batch_size": 2, "sequence_length": 1024}
TRAINER = f"--model_name_or_path {MODEL} --bf16 --per_device_train_batch_size 2 --max_seq_length 1024"
ALL_LINEAR = "--use_peft --lora_target_modules all-linear"


def asked(framework: str, num_gpus: int = 1, **changed: Any) -> Result:
    train = {"framework": framework, **SIZES, **changed}
    return estimate({"model": MODEL, "task": "train", "num_gpus": num_gpus, "train": train})


def commanded(line: str, num_gpus: int = 1, **sizes: Any) -> Result:
    scenario = dict(read_command(shlex.split(line)).scenario)
    train = {**scenario["train"], **SIZES, **sizes}
    return estimate({**scenario, "num_gpus": num_gpus, "train": train})


def check_same(one: Result, other: Result) -> None:
    settings = [dict(result.scenario["train"]) for result in (one, other)]
    differ = {key: tuple(found.get(key) for found in settings) for key in {*settings[0], *settings[1]}
              if settings[0].get(key) != settings[1].get(key)}  # fmt: skip
    assert differ == {}
    assert one.quantities["total_needed"] == other.quantities["total_needed"]


@pytest.mark.parametrize(
    ("flags", "changed"),
    [
        ("", {}),
        (ALL_LINEAR, {"method": "lora"}),
        (f"{ALL_LINEAR} --load_in_4bit", {"method": "qlora", "quantization": "nf4"}),
        ("--gradient_checkpointing", {"checkpointing": "full"}),
        ("--optim adamw_8bit", {"optimizer": "adamw-8bit"}),
        ("--fsdp full_shard", {"fsdp": "full-shard"}),
        (f"--fsdp full_shard {ALL_LINEAR}", {"fsdp": "full-shard", "method": "lora"}),
    ],
)
def test_trainers_command_and_an_open_scenario(flags: str, changed: dict[str, Any]) -> None:
    gpus = 2 if "fsdp" in changed else 1
    check_same(asked("transformers", gpus, **changed), commanded(f"python train.py {TRAINER} {flags}", gpus))


def test_the_overview_and_an_open_scenario() -> None:
    found = overview(MODEL, described_model(MODEL)[1], estimate).table
    cells = [("bf16", "full", {"method": "full"}), ("bf16", "lora", {"method": "lora"}),
             ("nf4", "lora", {"method": "qlora"})]  # fmt: skip
    for row, column, changed in cells:
        alone = estimate({"model": MODEL, "task": "train", "train": changed})
        assert found[row][column] == alone.quantities["total_needed"].expected
