"""LLaMA-Factory's files that train nothing (its examples/inference, merge_lora and extras/nlg_eval)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vramwise import estimate
from vramwise.errors import UsageError
from vramwise.interop.files.launches import read_files
from vramwise.interop.launch import read_command
from vramwise.scenario import Scenario

MODEL = "Qwen/Qwen3-4B-Instruct-2507"
CHAT = {"model_name_or_path": MODEL, "template": "qwen3_nothink", "trust_remote_code": True}


def read(tmp_path: Path, **settings):
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps({**CHAT, **settings}), "utf-8")
    launch = read_files([str(file)])[0].launch
    Scenario.from_dict(launch.scenario)
    return launch


@pytest.mark.parametrize(
    ("settings", "task", "expected"),
    [
        ({"infer_backend": "huggingface"}, "generate", {"batch_size": 1, "new_tokens": 1024}),
        ({}, "generate", {"batch_size": 1, "new_tokens": 1024}),
        ({"max_new_tokens": -1, "max_length": 2048}, "generate", {"new_tokens": 2048}),
        (
            {"infer_backend": "huggingface", "quantization_bit": 4, "max_new_tokens": 64, "num_beams": 2},
            "generate", {"quantization": "bitsandbytes-nf4", "new_tokens": 64, "num_beams": 2},
        ),
        (
            {"infer_backend": "vllm", "adapter_name_or_path": "saves/lora", "vllm_enforce_eager": True},
            "serve",
            {"engine": "vllm", "max_model_len": 4096, "gpu_memory_utilization": 0.7, "enforce_eager": True,
             "max_loras": 1, "max_lora_rank": 32},
        ),
        (
            {"infer_backend": "vllm", "vllm_maxlen": 8192, "vllm_gpu_util": 0.9,
             "vllm_config": '{"max_num_seqs": 16, "gpu_memory_utilization": 0.8}'},
            "serve", {"max_model_len": 8192, "gpu_memory_utilization": 0.8, "max_num_seqs": 16},
        ),
        (
            {"infer_backend": "sglang", "sglang_maxlen": 2048, "sglang_tp_size": 2},
            "serve",
            {"engine": "sglang", "max_model_len": 2048, "mem_fraction_static": 0.7, "tensor_parallel_size": 2},
        ),
        (
            {"do_predict": True, "predict_with_generate": True, "stage": "sft", "cutoff_len": 512,
             "eval_dataset": "x", "output_dir": "y"},
            "generate", {"batch_size": 8, "prompt_tokens": 512, "new_tokens": 1024},
        ),
        (
            {"do_eval": True, "do_train": False, "per_device_eval_batch_size": 2, "output_dir": "y"},
            "generate", {"batch_size": 2, "prompt_tokens": 2048, "prompt_logits": True},
        ),
    ],
)  # fmt: skip
def test_a_file_that_trains_nothing_is_what_llamafactory_runs(tmp_path, settings, task, expected):
    launch = read(tmp_path, **settings)
    assert (launch.scenario["model"], launch.scenario["task"]) == (MODEL, task)
    found = launch.scenario[task]
    assert {key: found.get(key) for key in expected} == expected


def test_an_export_loads_the_weights_into_the_machines_memory(tmp_path):
    launch = read(tmp_path, export_dir="saves/merged", export_device="cpu", adapter_name_or_path="saves/lora")
    assert {key: launch.scenario[key] for key in ("task", "num_gpus")} == {"task": "load", "num_gpus": 0}
    result = estimate(launch.scenario)
    assert result.verdict is None
    assert result.quantities["host_memory"] == result.quantities["weights"]
    on_gpu = read(tmp_path, export_dir="saves/merged", export_device="auto")
    assert on_gpu.scenario["task"] == "load"
    assert "num_gpus" not in on_gpu.scenario


def test_a_training_file_without_do_train_says_so(tmp_path):
    launch = read(tmp_path, stage="sft", finetuning_type="lora", dataset="x", learning_rate=1e-4, output_dir="y")
    assert launch.scenario["task"] == "train"
    assert any("do_train is not true" in note for note in launch.notes)
    trained = read(tmp_path, stage="sft", finetuning_type="lora", dataset="x", do_train=True, output_dir="y")
    assert not any("do_train is not true" in note for note in trained.notes)
    both = read(tmp_path, do_train=True, infer_backend="huggingface", dataset="x", output_dir="y")
    assert both.scenario["task"] == "train"


def test_the_commands_themselves_are_read():
    line = f"CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli api --model_name_or_path {MODEL} --infer_backend vllm"
    assert read_command(line.split()).scenario["serve"]["tensor_parallel_size"] == 2
    export = read_command(f"llamafactory-cli export --model_name_or_path {MODEL} --export_dir x".split())
    assert export.scenario["task"] == "load"
    with pytest.raises(UsageError, match="infer_backend: expected huggingface, vllm, sglang"):
        read_command(f"lmf chat --model_name_or_path {MODEL} --infer_backend ktransformers".split())
    with pytest.raises(UsageError, match="vllm_config: expected a JSON object"):
        read_command([*f"lmf chat --model_name_or_path {MODEL} --infer_backend vllm".split(), "--vllm_config={oops"])
