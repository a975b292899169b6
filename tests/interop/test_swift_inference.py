"""What `swift infer`, `deploy` and `rollout` start, by ms-swift 4.6's own arguments."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from vramwise.errors import UsageError
from vramwise.interop.launch import Launch, read_command
from vramwise.scenario import Scenario

VISION = "Qwen/Qwen2.5-VL-7B-Instruct"


def read(line: str) -> Launch:
    launch = read_command(shlex.split(line))
    Scenario.from_dict(launch.scenario)
    return launch


@pytest.mark.parametrize(
    ("line", "engine", "expected"),
    [
        ("deploy --model Qwen/Qwen3-8B --infer_backend vllm", "vllm",
         {"gpu_memory_utilization": 0.9, "max_num_seqs": 256}),
        (f"deploy --model {VISION} --infer_backend vllm --vllm_max_model_len 8192 --vllm_data_parallel_size 2", "vllm",
         {"max_model_len": 8192, "data_parallel_size": 2}),
        (f"""infer --model {VISION} --infer_backend vllm --vllm_tensor_parallel_size 2 --vllm_enforce_eager true
         --vllm_limit_mm_per_prompt '{{"image": 5, "video": 2}}'""", "vllm",
         {"tensor_parallel_size": 2, "enforce_eager": True, "limit_mm_per_prompt": {"image": 5, "video": 2}}),
        ("rollout --model Qwen/Qwen3-8B --vllm_enable_lora true --vllm_max_lora_rank 32", "vllm",
         {"max_loras": 1, "max_lora_rank": 32}),
        ("deploy --model Qwen/Qwen3-8B --infer_backend sglang --sglang_tp_size 2 --sglang_context_length 8192",
         "sglang", {"tensor_parallel_size": 2, "max_model_len": 8192}),
    ],
)  # fmt: skip
def test_an_engine_with_its_defaults(line: str, engine: str, expected: dict[str, Any]) -> None:
    launch = read(f"CUDA_VISIBLE_DEVICES=0,1 swift {line} --served_model_name x")
    found = launch.scenario["serve"]
    assert isinstance(found, dict)
    assert found["engine"] == engine
    assert {key: found.get(key) for key in expected} == expected
    assert "--served_model_name" in " / ".join(launch.notes)
    assert not [note for note in launch.notes if note.startswith("unknown")]


def test_transformers_answers_unless_told_otherwise() -> None:
    launch = read(
        "swift infer --model Qwen/Qwen3-8B --max_new_tokens 512 --max_batch_size 4 --quant_bits 4 --stream true"
    )
    assert launch.scenario["task"] == "generate"
    assert launch.scenario["generate"] == {
        "batch_size": 4, "new_tokens": 512, "quantization": "bitsandbytes-nf4",
    }  # fmt: skip
    many = read("NPROC_PER_NODE=4 CUDA_VISIBLE_DEVICES=0,1,2,3 swift infer --model Qwen/Qwen3-8B")
    assert "each of 4 GPUs has a model of its own" in " / ".join(many.notes)


def test_adapters_name_the_model_where_nothing_else_does() -> None:
    launch = read("swift deploy --adapters lora1=a/first lora2=a/second --infer_backend vllm")
    found = launch.scenario["serve"]
    assert launch.scenario["model"] == "a/first"
    assert isinstance(found, dict)
    assert (found["max_loras"], found["max_lora_rank"]) == (2, 16)


def test_what_it_refuses() -> None:
    with pytest.raises(UsageError, match=r"LMDeploy's engines are not described.*--tensor-parallel-size 2"):
        read("swift infer --model Qwen/Qwen3-8B --infer_backend lmdeploy --lmdeploy_tp 2")
    with pytest.raises(UsageError, match="--infer_backend: expected vllm"):
        read("swift deploy --model Qwen/Qwen3-8B --infer_backend other")
    with pytest.raises(UsageError, match="names no model"):
        read("swift deploy --infer_backend vllm")
