"""KServe's services: vLLM as their templates start it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vramwise.errors import UsageError
from vramwise.interop.files.launches import FileLaunch, read_files
from vramwise.scenario import Scenario


def read(tmp_path: Path, text: str, model: str | None = None) -> list[FileLaunch]:
    file = tmp_path / "service.yaml"
    file.write_text(text, "utf-8")
    answers = read_files([str(file)], model)
    for one in answers:
        Scenario.from_dict(one.launch.scenario)
    return answers


def serve(answer: FileLaunch) -> dict[str, Any]:
    table = answer.launch.scenario["serve"]
    assert isinstance(table, dict)
    return {**table, "model": answer.launch.scenario["model"]}


LLM = """
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata: {name: qwen}
spec:
  model: {uri: "hf://Qwen/Qwen3-30B-A3B", name: q}
  parallelism: {data: 4, dataLocal: 4, expert: true, tensor: 2}
  template:
    containers:
    - name: main
      env: [{name: VLLM_ADDITIONAL_ARGS, value: "--max-model-len 8192 --kv-cache-dtype=fp8"}]
      resources: {limits: {nvidia.com/gpu: "8"}}
  prefill:
    parallelism: {tensor: 4}
    template: {containers: [{name: main, args: [--enforce-eager]}]}
"""
HUGGING_FACE = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: llama}
spec:
  predictor:
    model:
      modelFormat: {name: huggingface}
      args: [--model_name=llama, ARGUMENTS]
      storageUri: hf://meta-llama/Llama-3.1-8B-Instruct
      resources: {limits: {nvidia.com/gpu: "2"}}
"""


def test_a_service_of_two_roles(tmp_path: Path) -> None:
    decode, prefill = read(tmp_path, LLM)
    assert (decode.name, prefill.name) == ("qwen", "qwen-prefill")
    expected = {"model": "Qwen/Qwen3-30B-A3B", "tensor_parallel_size": 2, "data_parallel_size": 4}
    expected |= {"expert_parallel": True, "max_model_len": 8192, "kv_cache_dtype": "fp8"}
    assert serve(decode).items() >= expected.items()
    assert serve(prefill).items() >= {"tensor_parallel_size": 4, "enforce_eager": True}.items()


def test_a_command_of_its_own_serves_the_services_model(tmp_path: Path) -> None:
    own = "command: [vllm, serve, /mnt/models, --max-model-len, '2048']\n      env:"
    decode, _ = read(tmp_path, LLM.replace("env:", own, 1))
    assert serve(decode).items() >= {"model": "Qwen/Qwen3-30B-A3B", "max_model_len": 2048}.items()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--max_model_len=4096, --tensor-parallel-size=2", {"max_model_len": 4096, "tensor_parallel_size": 2}),
        ("--model_id, Qwen/Qwen3-8B, --dtype, float16", {"model": "Qwen/Qwen3-8B", "dtype": "float16"}),
        ("--model_dir=/mnt/models, --backend=vllm", {"model": "meta-llama/Llama-3.1-8B-Instruct"}),
    ],
)
def test_the_hugging_face_server_takes_vllms_arguments(
    arguments: str, expected: dict[str, Any], tmp_path: Path
) -> None:  # fmt: skip
    (answer,) = read(tmp_path, HUGGING_FACE.replace("ARGUMENTS", arguments))
    assert serve(answer).items() >= expected.items()


def test_another_backend_is_said(tmp_path: Path) -> None:
    (answer,) = read(tmp_path, HUGGING_FACE.replace("ARGUMENTS", "--backend=huggingface"))
    assert any("--backend=huggingface: read as vLLM's all the same" in note for note in answer.launch.notes)


def test_a_model_that_lies_elsewhere_is_named_beside_the_file(tmp_path: Path) -> None:
    text = LLM.replace("hf://Qwen/Qwen3-30B-A3B", "pvc://claim/qwen")
    served = text.replace("name: q}", "name: Qwen/Qwen3-14B}")
    assert serve(read(tmp_path, served)[0])["model"] == "Qwen/Qwen3-14B"
    assert serve(read(tmp_path, text, model="Qwen/Qwen3-8B")[0])["model"] == "Qwen/Qwen3-8B"


@pytest.mark.parametrize("broken", ["spec: []", "spec: {predictor: 3}", "spec: {model: [], template: {containers: 5}}"])
def test_broken_services_are_one_line(broken: str, tmp_path: Path) -> None:
    for kind in ("InferenceService", "LLMInferenceService"):
        with pytest.raises(UsageError) as problem:
            read(tmp_path, f"apiVersion: serving.kserve.io/v1\nkind: {kind}\n{broken}\n")
        assert "\n" not in str(problem.value)


ADAPTED = """
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata: {name: adapted}
spec:
  model:
    uri: hf://Qwen/Qwen3-8B
    lora: {adapters: [{name: a, uri: "hf://x/a"}, {name: b, uri: "hf://x/b"}], maxRank: 64, maxAdapters: 2}
  template: {containers: [{name: main, image: "vllm/vllm-openai:v0.19.0", ARGUMENTS}]}
  workload: {kvCacheOffloading: {cpu: 10Gi}}
"""


def test_adapters_of_the_model_get_their_room(tmp_path: Path) -> None:
    (answer,) = read(tmp_path, ADAPTED.replace("ARGUMENTS", "args: [--max-model-len=4096]"))
    assert serve(answer) == {"model": "Qwen/Qwen3-8B", "engine": "vllm", "engine_version": "0.19.0", "max_loras": 2,
                             "max_lora_rank": 64, "max_model_len": 4096}  # fmt: skip
    assert any("workload.kvCacheOffloading is not counted" in note for note in answer.launch.notes)


def test_adapters_that_the_container_names_itself_are_its_own(tmp_path: Path) -> None:
    own = 'args: [--enable-lora, "--lora-modules=a=/a"]'
    (answer,) = read(tmp_path, ADAPTED.replace("ARGUMENTS", own))
    assert "max_lora_rank" not in answer.launch.scenario["serve"] or serve(answer)["max_lora_rank"] == 16
