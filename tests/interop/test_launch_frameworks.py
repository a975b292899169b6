"""Commands and configuration files of frameworks around Trainer become scenarios."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from vramwise.errors import SourceError, UsageError
from vramwise.interop.launch import Launch, read_command
from vramwise.interop.launch.options import READ_IN_CODE, options_of
from vramwise.scenario import Scenario, TrainSettings
from vramwise.scenario.definition import KINDS

LLAMA = "meta-llama/Llama-3.1-8B"


def read(line: str) -> Launch:
    launch = read_command(shlex.split(line))
    Scenario.from_dict(launch.scenario)
    return launch


def check(line: str, expected: dict[str, Any]) -> Launch:
    launch = read(line)
    found = {**launch.scenario, **launch.scenario["train"]}
    assert {key: found.get(key) for key in expected} == expected
    return launch


@pytest.mark.parametrize(
    ("settings", "flags", "expected"),
    [
        (
            "finetuning_type: lora\nlora_target: all\nbf16: true\ncutoff_len: 4096\nper_device_train_batch_size: 1",
            "",
            {"framework": "llamafactory", "method": "lora", "lora_rank": 8, "lora_targets": "all-linear",
             "precision": "bf16-mixed", "param_dtype": "bf16", "checkpointing": "full", "sequence_length": 4096},
        ),
        (
            "lora_target: q_proj,v_proj\nquantization_bit: 4\nflash_attn: fa2\nneat_packing: true\nfp16: true",
            "lora_rank=64 cutoff_len=1024",
            {"method": "qlora", "quantization": "nf4-dq", "lora_rank": 64, "lora_targets": ["q_proj", "v_proj"],
             "attention": "flash", "packing": True, "document_mask": True, "precision": "fp16-mixed",
             "sequence_length": 1024, "micro_batch_size": 8},
        ),
        (
            "finetuning_type: full\nbf16: true\nenable_liger_kernel: true\nuse_adam_mini: true",
            "",
            {"precision": "bf16-mixed", "param_dtype": "fp32", "loss": "fused-linear", "optimizer": "adam-mini"},
        ),
        (
            "finetuning_type: full\nstage: dpo\npure_bf16: true\nenable_liger_kernel: true\nuse_unsloth_gc: true",
            "",
            {"precision": "bf16", "extra_models": ["reference"], "micro_batch_size": 16, "loss": "standard",
             "offload_activations": "cpu"},
        ),
        (
            "finetuning_type: freeze\nfreeze_trainable_layers: 2\nbf16: true\ndisable_gradient_checkpointing: true",
            "",
            {"method": "freeze", "trainable": [".30.", ".31."], "checkpointing": "none"},
        ),
    ],
)  # fmt: skip
def test_llamafactory(tmp_path: Path, settings: str, flags: str, expected: dict[str, Any]) -> None:
    file = tmp_path / "train.yaml"
    file.write_text(f"model_name_or_path: {LLAMA}\ndataset: alpaca\n{settings}\n")
    launch = check(f"NPROC_PER_NODE=4 llamafactory-cli train {file} {flags}", {**expected, "num_gpus": 4})
    assert not any("unknown" in note for note in launch.notes)


def test_llamafactorys_flags_and_script(tmp_path: Path) -> None:
    flags = f"--model_name_or_path {LLAMA} --finetuning_type lora --bf16 True --stage sft --use_dora"
    check(
        f"torchrun --nproc_per_node 2 src/train.py {flags}", {"num_gpus": 2, "framework": "llamafactory", "dora": True}
    )
    zero = tmp_path / "zero.json"
    zero.write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}')
    check(f"llamafactory-cli train {flags} --deepspeed {zero}", {"zero_stage": 2, "precision": "bf16-master"})
    with pytest.raises(UsageError, match="finetuning_type: expected lora"):
        read(f"llamafactory-cli train --model_name_or_path {LLAMA} --finetuning_type oft")
    with pytest.raises(SourceError):
        read(f"llamafactory-cli train {tmp_path}/none.yaml")


@pytest.mark.parametrize("program", ["llamafactory"])
def test_every_option_sets_a_key_of_the_scenario(program: str) -> None:
    for name, option in options_of(program).items():
        assert option.key in ("", READ_IN_CODE) or option.key in KINDS[TrainSettings], name
        assert not (option.key and option.note), name
