"""One question has one answer: a scenario that leaves a framework's settings open, and the framework's own command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from vramwise import estimate
from vramwise.cli.screens.overview import overview
from vramwise.estimation import described_model
from vramwise.interop.deepspeed import read_deepspeed_file
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
    for found in settings:
        if isinstance(found["lora_targets"], list):
            found["lora_targets"] = sorted(found["lora_targets"])
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


def test_targets_that_nobody_names_are_said() -> None:
    """A scenario's own are all linear layers; peft's LoraConfig has a choice by model type."""
    launch = read_command(shlex.split(f"python train.py {TRAINER} --use_peft"))
    assert "no target modules are named: peft's own for llama are taken, q_proj v_proj" in launch.notes


def test_trls_command_and_an_open_scenario() -> None:
    line = f"trl sft --model_name_or_path {MODEL} --max_length 1024 --per_device_train_batch_size 2"
    check_same(asked("transformers", framework_version="trl 1.16"), commanded(line))


def test_megatrons_command_and_an_open_scenario() -> None:
    line = (
        "torchrun --nproc-per-node 1 pretrain_gpt.py --bf16 --num-layers 4 --hidden-size 1024 --num-attention-heads 16"
        " --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 2 --vocab-size 32000 --swiglu"
    )
    scenario = read_command(shlex.split(line)).scenario
    train = {"framework": "megatron", **SIZES}
    check_same(estimate({**scenario, "train": train}), estimate(scenario))


def test_the_overview_and_an_open_scenario() -> None:
    found = overview(MODEL, described_model(MODEL)[1], estimate).table
    cells = [("bf16", "full", {"method": "full"}), ("bf16", "lora", {"method": "lora"}),
             ("nf4", "lora", {"method": "qlora"})]  # fmt: skip
    for row, column, changed in cells:
        alone = estimate({"model": MODEL, "task": "train", "train": changed})
        assert found[row][column] == alone.quantities["total_needed"].expected


LORA = {"method": "lora", "lora_targets": "all-linear"}
QLORA = {**LORA, "method": "qlora", "quantization": "nf4-dq"}
AXOLOTL = f"base_model: {MODEL}\nsequence_len: 1024\nmicro_batch_size: 2\n"
FACTORY = f"model_name_or_path: {MODEL}\nstage: sft\nbf16: true\ncutoff_len: 1024\nper_device_train_batch_size: 2\n"


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ("", {}),
        ("adapter: lora\nlora_target_linear: true\n", LORA),
        ("adapter: qlora\nload_in_4bit: true\nlora_target_linear: true\n", QLORA),
        ("fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n", {"fsdp": "full-shard"}),
        ("fsdp_version: 1\nfsdp_config:\n  sharding_strategy: FULL_SHARD\n",
         {"fsdp": "full-shard", "fsdp_version": 1}),
    ],
)  # fmt: skip
def test_axolotls_configuration_and_an_open_scenario(tmp_path: Path, settings: str, changed: dict[str, Any]) -> None:
    file = tmp_path / "config.yml"
    file.write_text(AXOLOTL + settings)
    gpus = 2 if "fsdp" in changed else 1
    check_same(asked("axolotl", gpus, **changed), commanded(f"axolotl train {file}", gpus))


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ("finetuning_type: full\n", {}),
        ("finetuning_type: lora\nlora_target: all\n", LORA),
        ("finetuning_type: lora\nlora_target: all\nquantization_bit: 4\n", QLORA),
    ],
)
def test_llama_factorys_configuration_and_an_open_scenario(
    tmp_path: Path, settings: str, changed: dict[str, Any]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(FACTORY + settings)
    check_same(asked("llamafactory", **changed), commanded(f"llamafactory-cli train {file}"))


@pytest.mark.parametrize(
    ("flags", "changed"),
    [
        ("--tuner_type full", {}),
        ("--tuner_type lora", LORA),
        ("--tuner_type lora --quant_method bnb --quant_bits 4", QLORA),
    ],
)
def test_ms_swifts_command_and_an_open_scenario(flags: str, changed: dict[str, Any]) -> None:
    line = f"swift sft --model {MODEL} --max_length 1024 --per_device_train_batch_size 2 {flags}"
    check_same(asked("ms-swift", **changed), commanded(f"{line} --gradient_accumulation_steps 1"))


@pytest.mark.parametrize(
    ("program", "framework", "expected"),
    [
        ("python train.py --bf16 --model_name_or_path", "transformers", ("bf16-mixed", "fp32")),
        ("swift sft --tuner_type full --model", "ms-swift", ("fp16-mixed", "fp32")),
    ],
)
def test_a_checkpoint_in_fp32(program: str, framework: str, expected: tuple[str, str]) -> None:
    """transformers 5.23 loads it as it is; ms-swift computes in bf16 over bf16 weights alone."""
    found = commanded(f"{program} openai-community/gpt2 --per_device_train_batch_size 2", sequence_length=512,
                      gradient_accumulation_steps=1)  # fmt: skip
    train = {"framework": framework, **SIZES, "sequence_length": 512}
    check_same(estimate({"model": "openai-community/gpt2", "task": "train", "train": train}), found)
    assert (found.scenario["train"]["precision"], found.scenario["train"]["param_dtype"]) == expected


@pytest.mark.parametrize(
    ("recipe", "config", "changed"),
    [
        ("full_finetune_distributed", "llama3_1/8B_full", {"fsdp": "full-shard"}),
        ("full_finetune_single_device", "llama3_1/8B_full_single_device", {}),
        ("lora_finetune_single_device", "llama3_1/8B_lora_single_device", {"method": "lora"}),
        ("lora_finetune_distributed", "llama3_1/8B_lora", {"method": "lora", "fsdp": "full-shard"}),
        ("lora_finetune_single_device", "llama3_1/8B_qlora_single_device",
         {"method": "qlora", "quantization": "nf4-dq"}),
    ],
)  # fmt: skip
def test_torchtunes_recipes_and_an_open_scenario(recipe: str, config: str, changed: dict[str, Any]) -> None:
    gpus = 2 if "fsdp" in changed else 1
    line = f"tune run {recipe} --config {config}"
    check_same(asked("torchtune", gpus, **changed), commanded(line, gpus, gradient_accumulation_steps=1))


@pytest.mark.parametrize(
    ("config", "model"),
    [
        ("llama2/7B_full_low_memory", "meta-llama/Llama-2-7b-hf"),
        ("qwen2_5/3B_full_single_device", "Qwen/Qwen2.5-3B"),
        ("mistral/7B_full_low_memory", "mistralai/Mistral-7B-v0.1"),
        ("qwen2_5/0.5B_full_single_device", "Qwen/Qwen2.5-0.5B"),
    ],
)
def test_torchtunes_configurations_for_one_gpu(config: str, model: str) -> None:
    found = commanded(f"tune run full_finetune_single_device --config {config}", gradient_accumulation_steps=1)
    train = {"framework": "torchtune", **SIZES}
    check_same(estimate({"model": model, "task": "train", "train": train}), found)


@pytest.mark.parametrize(
    ("command", "flags", "changed"),
    [
        ("finetune_full", "", {}),
        ("finetune_lora", "", {"method": "lora"}),
        ("finetune_lora", "--quantize bnb.nf4 --precision bf16-true", {"method": "qlora", "quantization": "nf4"}),
    ],
)
def test_litgpts_command_and_an_open_scenario(command: str, flags: str, changed: dict[str, Any]) -> None:
    line = f"litgpt {command} {MODEL} --train.max_seq_length 1024 --train.micro_batch_size 2 {flags}"
    check_same(asked("litgpt", **changed), commanded(line, gradient_accumulation_steps=1))


def test_deepspeeds_configuration_and_an_open_scenario(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text('{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW"}}')
    stated = read_deepspeed_file(str(file)).train
    open_too = asked("deepspeed", 2, zero_stage=2)
    again = estimate({"model": MODEL, "task": "train", "num_gpus": 2, "train": {**SIZES, **stated}})
    assert open_too.quantities["total_needed"] == again.quantities["total_needed"]


@pytest.mark.parametrize(("stage", "changed"), [(2, {}), (3, {}), (3, {"method": "lora"})])
def test_trainer_under_deepspeed_and_an_open_scenario(tmp_path: Path, stage: int, changed: dict[str, Any]) -> None:
    file = tmp_path / "ds.json"
    sizes = '"reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto"'
    file.write_text(
        f'{{"bf16": {{"enabled": "auto"}}, "zero_optimization": {{"stage": {stage}, {sizes},'
        ' "stage3_param_persistence_threshold": "auto"}}'
    )
    flags = ALL_LINEAR if changed else ""
    line = f"deepspeed --num_gpus 2 train.py {TRAINER} {flags} --deepspeed {file}"
    check_same(asked("transformers", 2, zero_stage=stage, **changed), commanded(line, 2))
