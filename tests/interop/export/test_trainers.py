"""Scenarios of training as the files of the tools that run it: read back they say the same."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vramwise
from vramwise.cli.main import main
from vramwise.errors import UsageError
from vramwise.interop.export.trl import as_trl_does
from vramwise.interop.launch import read_command

_MODEL = "Qwen/Qwen2.5-0.5B"
_COMMON: dict[str, st.SearchStrategy[Any]] = {
    "micro_batch_size": st.integers(1, 8),
    "gradient_accumulation_steps": st.integers(1, 4),
    "checkpointing": st.sampled_from(["none", "full"]),
    "attention": st.sampled_from(["sdpa", "flash", "eager"]),
    "clip_grad_norm": st.booleans(),
    "packing": st.just(True),
}
_METHODS = st.one_of(
    st.just({"method": "full"}),
    st.fixed_dictionaries({"method": st.just("lora"), "lora_rank": st.sampled_from([4, 64]),
                           "lora_targets": st.sampled_from(["all-linear", ["q_proj", "v_proj"]])}),
    st.fixed_dictionaries({"method": st.just("qlora"), "quantization": st.sampled_from(["nf4", "nf4-dq", "int8"]),
                           "lora_dropout": st.sampled_from([0.0, 0.1]), "dora": st.booleans()}),
)  # fmt: skip
_OPTIMIZERS = st.sampled_from([
    {"optimizer": "adamw", "optimizer_impl": "fused"}, {"optimizer": "adamw", "optimizer_impl": "foreach"},
    {"optimizer": "adamw-8bit"}, {"optimizer": "paged-adamw-8bit"}, {"optimizer": "paged-adamw"},
    {"optimizer": "adafactor", "optimizer_impl": "for-loop"},
])  # fmt: skip
_ZERO = st.fixed_dictionaries({"zero_stage": st.sampled_from([1, 2, 3]), "precision": st.just("bf16-master")})
_FSDP = st.fixed_dictionaries({"fsdp": st.sampled_from(["full-shard", "shard-grad-op"]),
                               "fsdp_version": st.sampled_from([1, 2])})  # fmt: skip
_ANY = st.one_of(st.just({}), _ZERO, _FSDP)
_SHARDING = {"accelerate": _ANY, "deepspeed": _ZERO, "axolotl": _ANY, "llamafactory": _ANY, "trl": _ANY}
_STANDING_FOR = ("data: ", "script: ")
_TORCHTUNE = "Qwen/Qwen2.5-7B-Instruct"


@st.composite
def _scenarios(draw: st.DrawFn, tool: str) -> dict[str, Any]:
    chosen = draw(st.lists(st.sampled_from(sorted(_COMMON)), unique=True))
    train = {"sequence_length": draw(st.sampled_from([512, 2048])), **{key: draw(_COMMON[key]) for key in chosen}}
    train |= draw(_METHODS) | draw(_SHARDING[tool])
    if not train.get("zero_stage"):
        train |= draw(_OPTIMIZERS)
    return {"model": _MODEL, "task": "train", "gpu": "h100-sxm-80gb", "num_gpus": draw(st.sampled_from([1, 4])),
            "train": train}  # fmt: skip


@pytest.mark.parametrize("tool", _SHARDING)
@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_written_means_the_scenario(tool: str, data: st.DataObject) -> None:
    scenario = data.draw(_scenarios(tool))
    export = vramwise.export(scenario, tool)
    assert [line for line in export.not_expressed if not line.startswith(_STANDING_FOR)] == []


def _train(tool: str, **train: Any) -> vramwise.Scenario:
    framework = {"axolotl": "axolotl", "llamafactory": "llamafactory"}.get(tool, "transformers")
    return vramwise.Scenario.from_dict({"model": _MODEL, "task": "train", "num_gpus": 2, "train": {
        "framework": framework, "sequence_length": 1024, **train}})  # fmt: skip


@pytest.mark.parametrize("tool", ["axolotl", "llamafactory", "trl"])
def test_the_file_alone_is_read_back_by_estimate(tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / f"{tool}.yaml"
    asked = ["--task", "train", "--method", "qlora", "--quantization", "nf4-dq", "--lora-rank", "32",
             "--checkpointing", "full", "--sequence-length", "1024", "--gpu", "l40s"]  # fmt: skip
    assert main(["estimate", _MODEL, *asked, "--export", tool, "-o", str(file)]) == 0
    assert f"run: {'' if tool == 'trl' else 'CUDA_VISIBLE_DEVICES=0 '}" in capsys.readouterr().err
    assert main(["estimate", str(file), "--num-gpus", "1", "--gpu", "l40s", "--json"]) == 0
    back = json.loads(capsys.readouterr().out)
    scenario = _train(tool, method="qlora", quantization="nf4-dq", lora_rank=32, checkpointing="full")
    scenario = scenario.replace(gpu="l40s", num_gpus=1)
    own = vramwise.estimate(as_trl_does(scenario) if tool == "trl" else scenario)
    assert back["quantities"] == own.to_dict()["quantities"]


def test_accelerate_and_deepspeed_are_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.yaml"
    asked = ["--task", "train", "--zero-stage", "3", "--offload-optimizer", "cpu", "--precision", "bf16-master"]
    assert main(["estimate", _MODEL, *asked, "-n", "4", "--export", "accelerate", "-o", str(file)]) == 0
    said = capsys.readouterr().err
    assert f"{file}: accelerate's configuration\n" in said
    assert f"{tmp_path / 'run.deepspeed.json'}: DeepSpeed's configuration, which it names\n" in said
    zero = json.loads((tmp_path / "run.deepspeed.json").read_text())["zero_optimization"]
    assert zero["stage"] == 3
    assert zero["offload_optimizer"] == {"device": "cpu"}
    named = yaml.safe_load(file.read_text())["deepspeed_config"]["deepspeed_config_file"]
    assert named == str(tmp_path / "run.deepspeed.json")
    assert main(["estimate", _MODEL, "--export", "accelerate", *asked, "-o", str(file)]) == 2


def test_a_file_says_how_it_is_run_and_what_it_does_not_say() -> None:
    export = vramwise.export(_train("axolotl", loss="vocab-parallel"), "axolotl")
    lines = export.text.splitlines()
    assert lines[0].startswith("# axolotl's configuration, by vramwise; run: axolotl train axolotl.yaml --launcher")
    assert any(line.startswith("# not expressed: loss: vocab-parallel cannot be said; it runs with") for line in lines)
    assert yaml.safe_load(export.text)["base_model"] == _MODEL


def test_deepspeed_keeps_stated_sizes() -> None:
    export = vramwise.export(_train("deepspeed", zero_stage=3, precision="bf16-master", reduce_bucket_size=1000,
                                    stage3_param_persistence_threshold=20, overlap_comm=True), "deepspeed")  # fmt: skip
    table = json.loads(export.text)
    assert table["zero_optimization"]["reduce_bucket_size"] == 1000
    assert table["zero_optimization"]["stage3_param_persistence_threshold"] == 20
    assert table["zero_optimization"]["stage3_prefetch_bucket_size"] == "auto"
    assert table["zero_optimization"]["overlap_comm"] is True
    assert shlex.split(export.command)[:3] == ["deepspeed", "--num_gpus", "2"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--export", "deepspeed"], "add --zero-stage 1, 2 or 3"),
        (["--export", "deepspeed", "--fsdp", "full-shard"], "expected accelerate, axolotl, llamafactory or trl"),
        (["--export", "axolotl", "--framework", "megatron"], "leave out --framework"),
        (["--export", "trl", "--framework", "axolotl"], "expected axolotl, k8s, or leave out --framework"),
        (["--export", "accelerate", "--task", "serve"], "accelerate trains, and the task is serve"),
    ],
)
def test_what_no_trainer_runs_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", _MODEL, *words]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert said in found.err
    assert found.err.count("\n") == 1


@pytest.mark.parametrize(
    ("gpus", "train", "recipe"),
    [
        (1, {"method": "lora", "lora_rank": 16, "lora_targets": "all-linear"}, "lora_finetune_single_device"),
        (1, {"method": "qlora", "quantization": "nf4-dq", "dora": True, "lora_targets": ["q_proj", "lm_head"]},
         "lora_finetune_single_device"),
        (1, {"optimizer": "paged-adamw-8bit", "gradient_release": True}, "full_finetune_single_device"),
        (4, {"optimizer": "adamw-8bit", "clip_grad_norm": True, "packing": True}, "full_finetune_distributed"),
        (16, {"method": "lora", "offload_params": "cpu", "compile": True, "loss": "standard"},
         "lora_finetune_distributed"),
    ],
)  # fmt: skip
def test_torchtune_runs_what_it_ships_with_what_is_other(gpus: int, train: dict[str, Any], recipe: str) -> None:
    scenario = {"model": _TORCHTUNE, "task": "train", "num_gpus": gpus, "train": {"sequence_length": 512, **train}}
    export = vramwise.export(scenario, "torchtune")
    words = shlex.split(export.command)
    assert words[words.index("--config") - 1] == recipe
    assert "tokenizer.max_seq_len=512" in words
    assert [line for line in export.not_expressed if not line.startswith("model: tune download")] == []


def test_torchtune_names_the_files_of_a_model_that_it_ships_under_another_name() -> None:
    export = vramwise.export({"model": "meta-llama/Llama-3.1-8B", "task": "train"}, "torchtune")
    assert " --config llama3_1/8B_full_single_device " in export.command
    assert "checkpointer.checkpoint_dir=/tmp/Llama-3.1-8B" in export.command
    assert any(
        line.startswith("tokenizer: llama3_1/8B_full_single_device names files") for line in export.not_expressed
    )


def test_torchtune_ships_no_such_model() -> None:
    with pytest.raises(UsageError, match=r"ships no full configuration for Qwen3-8B .*expected axolotl"):
        vramwise.export({"model": "Qwen/Qwen3-8B", "task": "train"}, "torchtune")


def test_torchtunes_words_take_keys_away(tmp_path: Path) -> None:
    launch = read_command(shlex.split("tune run full_finetune_single_device --config qwen2_5/0.5B_full_single_device "
                                      "~optimizer.fused optimizer=torch.optim.SGD"))  # fmt: skip
    assert launch.scenario["train"]["optimizer"] == "sgd"
    assert launch.scenario["train"]["optimizer_impl"] == "foreach"


def test_trl_loads_the_base_of_adapters_as_it_was_estimated() -> None:
    """TRL's own default is fp32, which nobody who asks for LoRA means."""
    export = vramwise.export(_train("trl", method="lora", lora_rank=16), "trl")
    assert yaml.safe_load(export.text)["dtype"] == "bfloat16"
    assert yaml.safe_load(vramwise.export(_train("trl", method="full"), "trl").text)["dtype"] == "float32"
