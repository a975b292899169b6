"""What is written for accelerate and the Trainer, as their own parsers take it."""

from __future__ import annotations

import json
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

import vramwise
from vramwise.interop.export import Export

_MODEL = "Qwen/Qwen2.5-0.5B"
_LORA = {"method": "qlora", "quantization": "nf4-dq", "lora_rank": 16, "lora_targets": ["q_proj", "v_proj"]}
_CASES: tuple[dict[str, Any], ...] = (
    {},
    {**_LORA, "checkpointing": "full", "kernels": ["liger"], "loss": "fused-linear"},
    {"fsdp": "full-shard", "fsdp_version": 1},
    {"fsdp": "shard-grad-op", "fsdp_version": 2, "offload_params": "cpu", "offload_optimizer": "cpu"},
    {"zero_stage": 3, "precision": "bf16-master", "offload_optimizer": "cpu"},
    {"optimizer": "adamw-8bit", "clip_grad_norm": False, "compile": True},
)


def _export(tool: str, train: dict[str, Any], path: Path) -> Export:
    scenario = {"model": _MODEL, "task": "train", "num_gpus": 4, "train": {"sequence_length": 512, **train}}
    export = vramwise.export(scenario, tool, str(path))
    for file in export.files:
        Path(file.path).write_text(file.text)
    return export


@pytest.mark.parametrize("train", _CASES)
def test_accelerate_loads_its_file(train: dict[str, Any], tmp_path: Path) -> None:
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    export = _export("accelerate", train, tmp_path / "accelerate.yaml")
    config = config_args.load_config_from_file(export.files[0].path)
    assert config.num_processes == 4
    kind = "FSDP" if "fsdp" in train else "DEEPSPEED" if "zero_stage" in train else "MULTI_GPU"
    assert str(config.distributed_type).rpartition(".")[2] == kind


@pytest.mark.parametrize("train", _CASES)
def test_accelerate_launches_with_its_file(train: dict[str, Any], tmp_path: Path) -> None:
    launch = pytest.importorskip("accelerate.commands.launch")
    export = _export("accelerate", train, tmp_path / "accelerate.yaml")
    arguments = launch.launch_command_parser().parse_args(shlex.split(export.command)[2:])
    assert arguments.config_file == str(tmp_path / "accelerate.yaml")
    assert arguments.training_script == "train.py"


# transformers 5.23 calls it activation_checkpointing too; every version takes the name that is written
@pytest.mark.filterwarnings("ignore:.gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("train", _CASES)
def test_training_arguments_take_what_a_script_is_given(train: dict[str, Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    words = shlex.split(_export("accelerate", train, tmp_path / "accelerate.yaml").command)
    words = words[words.index("train.py") + 1 :]
    given = dict.fromkeys(word[2:] for word in words if word.startswith("--"))
    kept = [word for name in given if name in _names(transformers) for word in _of(words, name)]
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    [found] = parser.parse_args_into_dataclasses([*kept, "--use_cpu", "True", "--bf16", "False"])
    assert found.gradient_checkpointing is (train.get("checkpointing") == "full")
    assert str(found.optim).rpartition(".")[2].lower() in {"adamw_torch_fused", "adamw_bnb", "adamw_torch"}
    assert set(given) - _names(transformers) <= {
        "model_name_or_path", "max_length", "dtype", "attn_implementation", "use_peft", "lora_r", "lora_dropout",
        "lora_target_modules", "load_in_4bit", "bnb_4bit_quant_type", "use_bnb_nested_quant",
    }  # fmt: skip


@pytest.mark.parametrize("tool", ["trl", "llamafactory"])
@pytest.mark.parametrize("train", _CASES[2:4])
def test_training_arguments_know_fsdp_as_it_is_written(tool: str, train: dict[str, Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    table = yaml.safe_load(_export(tool, train, tmp_path / "file.yaml").text)
    found = transformers.TrainingArguments(fsdp=table["fsdp"], fsdp_config=table["fsdp_config"], use_cpu=True)
    assert found.fsdp


def test_peft_takes_the_adapters_of_trl(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    table = yaml.safe_load(_export("trl", _LORA, tmp_path / "trl.yaml").text)
    config = peft.LoraConfig(
        r=table["lora_r"], lora_dropout=table["lora_dropout"], target_modules=table["lora_target_modules"]
    )
    assert config.r == 16
    assert config.target_modules == {"q_proj", "v_proj"}


def test_accelerates_plugin_takes_the_deepspeed_file(tmp_path: Path) -> None:
    utilities = pytest.importorskip("accelerate.utils.deepspeed")
    export = _export("accelerate", _CASES[4], tmp_path / "accelerate.yaml")
    config = utilities.HfDeepSpeedConfig(json.loads(export.files[1].text))
    assert config.is_zero3()
    assert config.is_offload()


def _names(transformers: Any) -> set[str]:
    return {one.name for one in fields(transformers.TrainingArguments)}


def _of(words: list[str], name: str) -> list[str]:
    start = words.index(f"--{name}")
    end = next((place for place in range(start + 1, len(words)) if words[place].startswith("--")), len(words))
    return words[start:end]
