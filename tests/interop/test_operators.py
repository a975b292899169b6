"""Documents of which an operator makes pods: KubeAI's models and the vLLM production stack's runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vramwise.cli.main import main
from vramwise.errors import UsageError
from vramwise.interop.files.launches import FileLaunch, read_files
from vramwise.scenario import Scenario

KUBEAI = """
apiVersion: kubeai.org/v1
kind: Model
metadata: {name: chat}
spec:
  features: [TextGeneration]
  url: URL
  engine: ENGINE
  adapters: [{name: tuned, url: "hf://someone/tuned"}]
  args: [--max-model-len=32768, --tensor-parallel-size=2, --kv-cache-dtype=fp8]
  env: {VLLM_USE_V1: "0"}
  resourceProfile: PROFILE
  minReplicas: 1
"""
RUNTIME = """
apiVersion: production-stack.vllm.ai/v1alpha1
kind: VLLMRuntime
metadata: {name: runtime}
spec:
  model: {modelURL: Qwen/Qwen3-8B, enableLoRA: true, maxModelLen: 4096, dtype: bfloat16, maxNumSeqs: 32}
  vllmConfig: {enablePrefixCaching: false, tensorParallelSize: 2, gpuMemoryUtilization: "0.8", maxLoras: 4, v1: true,
               extraArgs: [--enforce-eager], port: 8000}
  lmCacheConfig: {enabled: true, cpuOffloadingBufferSize: "15"}
  deploymentConfig: {image: {registry: docker.io, name: "vllm/vllm-openai:v0.10.1"}}
"""

MODEL_SERVICE = """
modelArtifacts: {name: Qwen/Qwen3-8B, uri: 'hf://{{ .Values.modelArtifacts.name }}', size: 20Gi}
decode:
  create: true
  replicas: 2
  parallelism: {tensor: 2, data: 4, dataLocal: 2}
  containers:
  - name: vllm
    image: ghcr.io/llm-d/llm-d-cuda:v0.3.0
    modelCommand: vllmServe
    args: [--enforce-eager, --max-model-len, "32000"]
    env: [{name: VLLM_LOGGING_LEVEL, value: DEBUG}]
prefill:
  create: PREFILLS
  containers:
  - name: vllm
    command: [sh, -c]
    args: ["exec vllm serve Qwen/Qwen3-8B --tensor-parallel-size ${TP_SIZE} --block-size 128"]
    resources: {limits: {nvidia.com/gpu: "1"}}
"""
NIM = """
apiVersion: apps.nvidia.com/v1alpha1
kind: NIMService
metadata: {name: llama}
spec:
  image: {repository: nvcr.io/nim/meta/llama-3.1-8b-instruct, tag: "1.8.3"}
  env: [{name: NIM_MAX_MODEL_LEN, value: "8192"}]
  resources: {limits: {nvidia.com/gpu: 1}}
"""


def read(tmp_path: Path, text: str, name: str = "model.yaml") -> list[FileLaunch]:
    file = tmp_path / name
    file.write_text(text, "utf-8")
    answers = read_files([str(file)])
    for one in answers:
        Scenario.from_dict(one.launch.scenario)
    return answers


def holds(answer: FileLaunch, **expected: object) -> None:
    scenario: dict[str, Any] = answer.launch.scenario
    found = {**scenario, **scenario["serve"]}
    assert {key: found.get(key) for key in expected} == expected


def kubeai(url: str, engine: str, profile: str) -> str:
    return KUBEAI.replace("URL", url).replace("ENGINE", engine).replace("PROFILE", profile)


def test_a_model_of_kubeai_is_the_engine_that_it_names(tmp_path: Path) -> None:
    (answer,) = read(tmp_path, kubeai("hf://Qwen/Qwen3-8B", "VLLM", "nvidia-gpu-l4:2"))
    assert answer.name == "chat"
    holds(answer, model="Qwen/Qwen3-8B", gpu="l4", max_model_len=32768, tensor_parallel_size=2, kv_cache_dtype="fp8",
          use_v1=False, max_loras=1)  # fmt: skip
    assert any("features, minReplicas" in note for note in answer.launch.notes)


@pytest.mark.parametrize("url", ["ollama://qwen3:8b", "ollama://qwen3:8b?insecure=true", "pvc://disk?model=qwen3:8b"])
def test_a_model_of_kubeai_is_ollamas(url: str, tmp_path: Path) -> None:
    (answer,) = read(tmp_path, kubeai(url, "OLlama", "cpu:2"))
    holds(answer, model="Qwen/Qwen3-8B", engine="ollama", gguf_quant="Q4_K_M")
    assert any("resourceProfile cpu:2 names no card" in note for note in answer.launch.notes)


def test_what_neither_engine_runs_is_nobodys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "speech.yaml").write_text(kubeai("hf://Systran/w", "FasterWhisper", "cpu:1"), "utf-8")
    assert main(["estimate", str(tmp_path / "speech.yaml")]) == 2
    assert "starts no program known here" in capsys.readouterr().err


def test_values_of_the_chart_of_models_are_those_that_are_enabled(tmp_path: Path) -> None:
    one = "{enabled: ENABLED, url: 'hf://Qwen/Qwen3-8B', engine: VLLM, args: [--max-model-len=4096]}"
    two = one.replace("8B", "4B").replace("ENABLED", "false")
    for enabled, names in (("true", ["first"]), ("false", ["first", "second"])):
        text = f"catalog:\n  first: {one.replace('ENABLED', enabled)}\n  second: {two}\n"
        assert [answer.name for answer in read(tmp_path, text, "values.yaml")] == names


def test_a_runtime_of_the_production_stack_is_vllm(tmp_path: Path) -> None:
    (answer,) = read(tmp_path, RUNTIME)
    holds(answer, model="Qwen/Qwen3-8B", engine_version="0.10.1", max_model_len=4096, dtype="bfloat16",
          max_num_seqs=32, enable_prefix_caching=False, tensor_parallel_size=2, gpu_memory_utilization=0.8, max_loras=4,
          enforce_eager=True)  # fmt: skip
    notes = " / ".join(answer.launch.notes)
    assert "port" in notes
    assert "--kv-transfer-config is not counted" in notes


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: llm}
spec:
  template:
    spec:
      containers:
      - name: server
        image: IMAGE
        ARGUMENTS
---
apiVersion: v1
kind: Secret
stringData:
  hf_api_token: {{HF_TOKEN}}
"""


def test_a_placeholder_in_another_document_leaves_the_rest_readable(tmp_path: Path) -> None:
    text = DEPLOYMENT.replace("IMAGE", "vllm/vllm-openai:v0.10.0").replace("ARGUMENTS", "args: [--model=Qwen/Qwen3-8B]")
    (answer,) = read(tmp_path, text)
    holds(answer, model="Qwen/Qwen3-8B", engine_version="0.10.0")
    assert any("its document of line 13 is passed over: not YAML" in note for note in answer.launch.notes)


def test_googles_images_of_text_generation_inference(tmp_path: Path) -> None:
    image = "us-docker.pkg.dev/release/gcr.io/huggingface-text-generation-inference-cu124.2-3.ubuntu2204.py311"
    told = "env: [{name: MODEL_ID, value: Qwen/Qwen3-8B}, {name: NUM_SHARD, value: '2'}]"
    (answer,) = read(tmp_path, DEPLOYMENT.replace("IMAGE", image).replace("ARGUMENTS", told))
    holds(answer, model="Qwen/Qwen3-8B", engine="tgi", engine_version="2.3", tensor_parallel_size=2)


@pytest.mark.parametrize(("image", "version", "where"), [
    ("vllm/vllm-openai-cpu:v0.19.0", "0.19.0", "the CPU"), ("vllm/vllm-tpu:v0.11.1", "0.11.1", "a TPU"),
])  # fmt: skip
def test_images_for_other_devices_are_said(image: str, version: str, where: str, tmp_path: Path) -> None:
    (answer,) = read(tmp_path, DEPLOYMENT.replace("IMAGE", image).replace("ARGUMENTS", "args: [--model=Qwen/Qwen3-8B]"))
    holds(answer, engine_version=version)
    assert f"the image runs on {where}: the numbers are those of a GPU" in answer.launch.notes


SEVERAL = """
services:
  known: {image: "vllm/vllm-openai:v0.10.0", command: "--model Qwen/Qwen3-8B"}
  unknown: {image: "vllm/vllm-openai:v0.10.0", command: "--model nobody/has-this"}
  broken: {image: "vllm/vllm-openai:v0.10.0", command: "--model Qwen/Qwen3-8B --max-model-len many"}
"""


def test_one_service_without_an_answer_leaves_the_others_theirs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    file = tmp_path / "docker-compose.yml"
    file.write_text(SEVERAL, "utf-8")
    assert main(["estimate", str(file), "--gpu", "h100"]) == 4
    printed = capsys.readouterr()
    assert "Qwen3 8B · serve · vllm" in printed.out
    assert "not answered, though the file starts it: broken" in " ".join(printed.out.split())
    assert printed.err.startswith('vramwise: unknown: unknown model "nobody/has-this"')
    assert printed.err.count("\n") == 1


def test_a_chart_that_is_not_filled_in_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "deployment.yaml"
    file.write_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  {{- with .Values.x }}\n  name: {{ .y }}\n", "utf-8"
    )
    assert main(["estimate", str(file)]) == 4
    assert "not YAML but a template, with double braces: give it filled in" in capsys.readouterr().err


def test_values_of_the_stack_name_what_they_leave_out(tmp_path: Path) -> None:
    text = """
servingEngineSpec:
  modelSpec:
  - {name: q, repository: vllm/vllm-openai, tag: v0.10.1, modelURL: Qwen/Qwen3-8B, requestGPU: 1, shmSize: 6Gi,
     env: [{name: VLLM_USE_V1, value: "0"}], lmcacheConfig: {enabled: true},
     vllmConfig: {maxModelLen: 4096, runner: pooling, prometheusMultiprocDir: /tmp}}
"""
    (answer,) = read(tmp_path, text, "values.yaml")
    holds(answer, max_model_len=4096, enable_prefix_caching=False, use_v1=False, pooling=True, engine_version="0.10.1")
    notes = " / ".join(answer.launch.notes)
    assert "no effect on the memory counted here: vllmConfig.prometheusMultiprocDir, shmSize" in notes
    assert "--kv-transfer-config is not counted" in notes


@pytest.mark.parametrize("command", ['["/bin/bash", "-lc", "--"]', '["/bin/bash", "-c"]'])
def test_a_head_of_kuberay_that_serves_itself(command: str, tmp_path: Path) -> None:
    text = f"""
apiVersion: ray.io/v1
kind: RayCluster
metadata: {{name: r1}}
spec:
  headGroupSpec:
    template:
      spec:
        containers:
        - {{name: ray-head, image: "aibrix/vllm-openai:v0.7.3.self.post1", command: {command},
           args: ["ulimit -n 65536; echo head; $KUBERAY_GEN_RAY_START_CMD; vllm serve Qwen/Qwen3-8B -tp 2"]}}
"""
    (answer,) = read(tmp_path, text)
    holds(answer, model="Qwen/Qwen3-8B", tensor_parallel_size=2, engine_version="0.7.3")


def test_values_of_llm_ds_chart_are_its_roles(tmp_path: Path) -> None:
    """_helpers.tpl of llm-d-modelservice 3051935: four copies of two GPUs each."""
    decode, prefill = read(tmp_path, MODEL_SERVICE.replace("PREFILLS", "true"), "values.yaml")
    assert (decode.name, prefill.name) == ("decode", "prefill")
    holds(decode, model="Qwen/Qwen3-8B", engine="vllm", tensor_parallel_size=2, data_parallel_size=4,
          max_model_len=32000, enforce_eager=True)  # fmt: skip
    holds(prefill, model="Qwen/Qwen3-8B", tensor_parallel_size=1, block_size=128)


def test_a_role_that_is_not_created_needs_nothing(tmp_path: Path) -> None:
    (decode,) = read(tmp_path, MODEL_SERVICE.replace("PREFILLS", "false"), "values.yaml")
    holds(decode, tensor_parallel_size=2)


def test_a_service_of_the_nim_operator_is_told_what_is_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"NIM's .*llama-3\.1-8b-instruct .*--max-model-len 8192"):
        read(tmp_path, NIM)
