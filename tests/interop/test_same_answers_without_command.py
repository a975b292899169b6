"""One question has one answer under frameworks whose commands nobody reads.

Open, in flags, a file, a batch line and Python, and with all that the framework's own example configuration says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from vramwise import estimate
from vramwise.cli.main import main
from vramwise.cli.screens.overview import overview
from vramwise.estimation import described_model

MODEL = "meta-llama/Llama-3.1-8B"
SIZES = {"micro_batch_size": 1, "sequence_length": 8192}
TITAN = {"fsdp": "full-shard"}
FOUNDRY = {"fsdp": "full-shard"}
EXAMPLES: dict[str, tuple[str, int, dict[str, Any], dict[str, Any]]] = {
    # torchtitan 0.3 models/llama3/config_registry.py llama3_8b, config/configs.py TrainingConfig, OptimizersContainer
    "torchtitan": ("torchtitan", 8, TITAN, {
        "precision": "bf16-mixed", "param_dtype": "fp32", "optimizer": "adamw", "optimizer_impl": "fused",
        "checkpointing": "selective", "loss": "chunked", "gradient_accumulation_steps": 1, "clip_grad_norm": True,
        "compile": False, "fsdp_version": 2,
    }),
    # the same with training.tensor_parallel_degree: sequence parallelism and loss parallelism come with it
    "torchtitan, tensor parallel": ("torchtitan", 8, {**TITAN, "tensor_parallel_size": 2}, {
        "checkpointing": "selective", "loss": "chunked", "sequence_parallel": True, "optimizer_impl": "fused",
    }),
    # llm-foundry scripts/train/yamls/finetune/mpt-7b_dolly_sft.yaml: fsdp_config, amp_bf16, decoupled_adamw
    "llm-foundry": ("llm-foundry", 8, FOUNDRY, {
        "precision": "bf16-mixed", "checkpointing": "full", "optimizer": "adamw", "optimizer_impl": "for-loop",
        "attention": "flash", "offload_activations": "none",
    }),
    # unsloth's notebooks: FastLanguageModel.from_pretrained(load_in_4bit), get_peft_model(r=16), optim adamw_8bit
    "unsloth, 4 bits": ("unsloth", 1, {"method": "qlora", "lora_rank": 16, "quantization": "nf4-dq"}, {
        "precision": "bf16", "optimizer": "adamw-8bit", "checkpointing": "full", "offload_activations": "cpu",
        "loss": "fused-linear", "expandable_segments": True, "lora_targets": "all-linear", "lora_dropout": 0.0,
    }),
    "unsloth, 16 bits": ("unsloth", 1, {"method": "lora", "lora_rank": 16}, {
        "precision": "bf16", "optimizer": "adamw-8bit", "checkpointing": "full", "offload_activations": "cpu",
        "loss": "fused-linear", "expandable_segments": True,
    }),
    # torch's own: AdamW(model.parameters()) and autocast in a loop, as in its documentation
    "pytorch": ("pytorch", 1, {}, {
        "precision": "bf16-mixed", "param_dtype": "fp32", "optimizer": "adamw", "optimizer_impl": "foreach",
        "checkpointing": "none", "loss": "standard", "attention": "sdpa", "expandable_segments": False,
    }),
    "pytorch, adapters": ("pytorch", 1, {"method": "lora"}, {
        "precision": "bf16", "optimizer": "adamw", "optimizer_impl": "foreach", "checkpointing": "none",
        "lora_targets": "all-linear", "lora_rank": 8,
    }),
}  # fmt: skip


def question(framework: str, num_gpus: int, train: dict[str, Any]) -> dict[str, Any]:
    table = {"framework": framework, **SIZES, **train}
    return {"model": MODEL, "task": "train", "gpu": "h100-sxm-80gb", "num_gpus": num_gpus, "train": table}


def answered(scenario: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(estimate(scenario).to_dict()))
    return found


def said(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(list(words)) in (0, 3)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    found.pop("suggestions", None)  # what else would help: of `estimate --json` alone
    return found


def flags(scenario: dict[str, Any]) -> list[str]:
    words = [scenario["model"]]
    for key, value in {**scenario, **scenario["train"]}.items():
        if key not in ("model", "train"):
            words += [f"--{key.replace('_', '-')}", str(value)]
    return words


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_an_example_says_is_what_is_taken_where_nothing_is_said(name: str) -> None:
    framework, gpus, asked, example = EXAMPLES[name]
    left_open, written_out = (answered(question(framework, gpus, train)) for train in (asked, {**asked, **example}))
    assert left_open["scenario"]["train"] == written_out["scenario"]["train"]
    assert left_open["quantities"] == written_out["quantities"]
    assert left_open["phases"] == written_out["phases"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_way_of_asking_has_the_same_answer(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    framework, gpus, asked, _ = EXAMPLES[name]
    scenario = question(framework, gpus, asked)
    there = answered(scenario)
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(scenario), encoding="utf-8")
    assert said(capsys, "estimate", *flags(scenario), "--json") == there
    assert said(capsys, "estimate", str(file), "--json") == there
    assert said(capsys, "estimate", "--scenario", str(file), "--json") == there
    lines = tmp_path / "jobs.jsonl"
    lines.write_text(json.dumps(scenario) + "\n", encoding="utf-8")
    line = said(capsys, "batch", "--limits", str(lines))
    assert line["result"] == there


def test_the_overviews_rows_are_those_of_a_scenario_without_a_framework() -> None:
    """It names no framework, so that its rows are Trainer's; a script of one's own is another question."""
    found = overview(MODEL, described_model(MODEL)[1], estimate).table
    trainers, own = (
        estimate({"model": MODEL, "task": "train", "train": train}) for train in ({}, {"framework": "pytorch"})
    )
    assert found["bf16"]["full"] == trainers.quantities["total_needed"].expected
    assert own.quantities["total_needed"].expected > trainers.quantities["total_needed"].expected
