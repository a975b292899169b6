"""Tasks of SkyPilot and dstack, recipes, Modal's scripts, Ray Serve's engines, SGLang's router, TensorRT-LLM's file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from vramwise.errors import UsageError
from vramwise.interop.files.launches import FileLaunch, read_files
from vramwise.interop.launch import read_command


def answers(tmp_path: Path, name: str, text: str) -> list[FileLaunch]:
    file = tmp_path / name
    file.write_text(text)
    return read_files([str(file)])


def scenario(tmp_path: Path, name: str, text: str) -> dict[str, Any]:
    (one,) = answers(tmp_path, name, text)
    return dict(one.launch.scenario)


SKY = """
resources:
  accelerators: {ACCELERATORS}
run: |
  vllm serve Qwen/Qwen3-32B --tensor-parallel-size $SKYPILOT_NUM_GPUS_PER_NODE
"""


@pytest.mark.parametrize("accelerators", ["L4:8", "{L4:8, A100:4}", "{L4: 8}", "[L4:8, A100:4]"])
def test_accelerators_of_skypilot(tmp_path: Path, accelerators: str) -> None:
    """skypilot docs/source/reference/yaml-spec.rst; `{L4:8}` without a blank is one word of YAML."""
    found = scenario(tmp_path, "task.yaml", SKY.replace("{ACCELERATORS}", accelerators))
    assert (found["gpu"], found["serve"]["tensor_parallel_size"]) == ("l4", 8)


def test_the_version_that_a_task_of_skypilot_installs(tmp_path: Path) -> None:
    """skypilot llm/vllm/serve.yaml."""
    setup = "setup: |\n  pip install vllm==0.6.3\n"
    found = scenario(tmp_path, "task.yaml", SKY.replace("{ACCELERATORS}", "L4:8") + setup)
    assert found["serve"]["engine_version"] == "0.6.3"


DSTACK = """
type: service
name: llama
image: vllm/vllm-openai:v0.11.0
env:
  - HF_TOKEN
  - MODEL=Qwen/Qwen3-32B
commands:
  - vllm serve $MODEL --tensor-parallel-size $DSTACK_GPUS_NUM
resources:
  gpu: GPU
"""


@pytest.mark.parametrize(
    ("gpu", "card", "count"),
    [
        ("H100:8", "h100-sxm-80gb", 8), ("A100:80GB:2", "a100-sxm-80gb", 2), ("2", None, 2),
        ("{name: MI300X, count: 4}", "mi300x", 4), ("24GB..", None, 1),
    ],
)  # fmt: skip
def test_a_service_of_dstack(tmp_path: Path, gpu: str, card: str | None, count: int) -> None:
    """dstack examples/models/gpt-oss/amd/120b.dstack.yml, docs/reference/dstack.yml/service.md."""
    found = scenario(tmp_path, "x.dstack.yml", DSTACK.replace("GPU\n", f"{gpu}\n"))
    assert found["model"] == "Qwen/Qwen3-32B"
    assert (found.get("gpu"), found["serve"].get("tensor_parallel_size", 1)) == (card, count)
    assert found["serve"]["engine_version"] == "0.11.0"


RAY = """
from ray.llm._internal.serve.engines.sglang import SGLangServer
from ray.serve.llm import LLMConfig
config = LLMConfig(
    model_loading_config={"model_id": "llama", "model_source": "meta-llama/Llama-3.1-8B-Instruct"},
    server_cls=SGLangServer,
    engine_kwargs={"tp_size": 2, "mem_fraction_static": 0.8},
)
"""


def test_ray_serves_sglang_where_its_class_is_handed_over(tmp_path: Path) -> None:
    """Ray docs serve/llm: `server_cls` in place of vLLM's."""
    found = scenario(tmp_path, "serve.py", RAY)["serve"]
    assert (found["engine"], found["tensor_parallel_size"], found["mem_fraction_static"]) == ("sglang", 2, 0.8)
    with pytest.raises(UsageError, match="server_cls"):
        answers(tmp_path, "serve.py", RAY.replace("server_cls=SGLangServer", "server_cls=mine.Server"))


def test_sglang_behind_its_router() -> None:
    line = "python -m sglang_router.launch_server --model-path Qwen/Qwen3-8B --dp-size 4 --tp-size 2 --router-policy x"
    found = read_command(shlex.split(line)).scenario
    assert found["serve"] == {"engine": "sglang", "data_parallel_size": 4, "tensor_parallel_size": 2}


def test_tensorrt_llms_file_wins_over_its_flags(tmp_path: Path) -> None:
    """TensorRT-LLM 1.2 llmapi/llm_args.py update_llm_args_with_extra_dict."""
    file = tmp_path / "extra.yaml"
    file.write_text(
        "kv_cache_config: {dtype: fp8, free_gpu_memory_fraction: 0.7}\nmax_batch_size: 32\nlora_config: {}\n"
    )
    line = f"trtllm-serve Qwen/Qwen3-8B --max_batch_size 64 --extra_llm_api_options {file}"
    launch = read_command(shlex.split(line))
    found = {"engine": "tensorrt-llm", "max_num_seqs": 32, "kv_cache_dtype": "fp8", "gpu_memory_utilization": 0.7}
    assert launch.scenario["serve"] == found
    assert any("lora_config" in note for note in launch.notes)
    absent = read_command(shlex.split("trtllm-serve Qwen/Qwen3-8B --extra_llm_api_options /no/such.yaml"))
    assert any("/no/such.yaml cannot be read" in note for note in absent.notes)


MODAL = """
import subprocess, sys, modal
MODEL, N_GPU, FAST = "Qwen/Qwen3-32B", 2, False
image = modal.Image.debian_slim().uv_pip_install("vllm==0.19.0")

@modal.App("x").function(image=image, gpu=f"H100:{N_GPU}")
def serve():
    cmd = ["vllm", "serve", MODEL, "--max-model-len", str(16_384), "--max-num-seqs", limit()]
    cmd += ["--enforce-eager" if FAST else "--no-enforce-eager"]
    cmd += ["--tensor-parallel-size", str(N_GPU)]
    subprocess.Popen(" ".join(cmd), shell=True)
"""


def test_a_script_of_modal_that_starts_a_server_by_a_list_of_words(tmp_path: Path) -> None:
    """vllm-project/recipes Google/gemma4-modal.py, modal-labs/modal-examples 06_gpu_and_ml/llm-serving."""
    (one,) = answers(tmp_path, "serve.py", MODAL)
    found = one.launch.scenario
    assert (found["model"], found["gpu"]) == ("Qwen/Qwen3-32B", "h100-sxm-80gb")
    serve = {"engine": "vllm", "engine_version": "0.19.0", "tensor_parallel_size": 2, "max_model_len": 16_384}
    assert {key: found["serve"].get(key) for key in serve} == serve  # type: ignore[attr-defined]
    assert any("left out: --max-num-seqs" in note for note in one.launch.notes)


RECIPE = """
meta: {title: GLM-4.5, tasks: [text]}
model:
  model_id: zai-org/GLM-4.5
  base_args: ["--trust-remote-code", "--kv-cache-dtype", fp8]
variants:
  default: {precision: bf16}
  fp8: {model_id: zai-org/GLM-4.5-FP8, precision: fp8}
"""


def test_a_recipe_serves_its_model_and_each_variant(tmp_path: Path) -> None:
    """vllm-project/recipes models/zai-org/GLM-4.5.yaml."""
    found = {one.name: one.launch.scenario for one in answers(tmp_path, "GLM-4.5.yaml", RECIPE)}
    assert {name: one["model"] for name, one in found.items()} == {
        "default": "zai-org/GLM-4.5", "fp8": "zai-org/GLM-4.5-FP8"
    }  # fmt: skip
    assert all(one["serve"] == {"engine": "vllm", "kv_cache_dtype": "fp8"} for one in found.values())


def test_a_container_of_nim_is_told_what_is_nearest() -> None:
    """docs.nvidia.com/nim/large-language-models: the container chooses its engine and precision by the card."""
    image = "nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8.4"
    line = f"docker run --gpus all -e NIM_MAX_MODEL_LEN=8192 -e NIM_TENSOR_PARALLEL_SIZE=2 {image}"
    flags = "--max-model-len 8192 --tensor-parallel-size 2"
    with pytest.raises(UsageError, match=rf"NIM's .*llama-3\.1-8b-instruct .*{flags}"):
        read_command(shlex.split(line))
    own = "docker run -e NIM_MODEL_NAME=hf://Qwen/Qwen3-8B nvcr.io/nim/nvidia/llm-nim:1.12.0"
    with pytest.raises(UsageError, match="estimate Qwen/Qwen3-8B --task serve"):
        read_command(shlex.split(own))
