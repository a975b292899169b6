"""Scenarios of engines as their commands: what is written says the same when it is read back."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import vramwise
from vramwise.cli.main import main
from vramwise.errors import UnknownNameError, UsageError
from vramwise.interop.export import Export
from vramwise.interop.launch import read_command
from vramwise.interop.launch.flags import flags_of

_SHARED: dict[str, st.SearchStrategy[Any]] = {
    "max_model_len": st.sampled_from([1024, 4096, 8192]),
    "dtype": st.sampled_from(["bf16", "fp16"]),
    "tensor_parallel_size": st.sampled_from([1, 2, 4]),
    "max_num_seqs": st.integers(1, 300),
    "kv_cache_dtype": st.sampled_from(["auto", "fp8_e4m3", "fp8_e5m2"]),
    "enforce_eager": st.booleans(),
    "enable_prefix_caching": st.booleans(),
}
_VLLM = _SHARED | {
    "gpu_memory_utilization": st.sampled_from([0.5, 0.85, 0.9234567]),
    "max_num_batched_tokens": st.sampled_from([2048, 16384]),
    "block_size": st.sampled_from([16, 32]),
    "pipeline_parallel_size": st.sampled_from([1, 2]),
    "max_loras": st.integers(1, 4),
    "quantization": st.sampled_from(["fp8", "awq", "gptq", "gptq-marlin", "bitsandbytes-nf4"]),
}
_SGLANG = _SHARED | {
    "mem_fraction_static": st.sampled_from([0.7, 0.88]),
    "chunked_prefill_size": st.sampled_from([2048, 8192]),
    "cuda_graph_max_bs": st.sampled_from([8, 64]),
    "max_total_tokens": st.sampled_from([20_000, 60_000]),
    "quantization": st.sampled_from(["fp8", "awq", "gptq"]),
}
_LLAMA_CPP: dict[str, st.SearchStrategy[Any]] = {
    "n_ctx": st.sampled_from([2048, 8192]),
    "n_batch": st.sampled_from([512, 2048]),
    "n_ubatch": st.sampled_from([128, 512]),
    "flash_attn": st.booleans(),
    "cache_type_k": st.sampled_from(["f16", "q8_0"]),
    "n_gpu_layers": st.integers(0, 30),
    "n_parallel": st.integers(1, 4),
    "kv_unified": st.booleans(),
    "no_kv_offload": st.booleans(),
    "swa_full": st.booleans(),
    "fit": st.booleans(),
}
_SCENARIOS = {
    "vllm": ("vllm", _VLLM, {}),
    "sglang": ("sglang", _SGLANG, {}),
    "llama-server": ("llama.cpp", _LLAMA_CPP, {"gguf_quant": "Q4_K_M", "logits_all": False}),
}


def _back(export: Export) -> dict[str, Any]:
    """The scenario of the command that was written."""
    return dict(read_command(shlex.split(export.command)).scenario)


def _quantities(scenario: Any) -> dict[str, Any]:
    return {name: quantity.to_dict() for name, quantity in vramwise.estimate(scenario).quantities.items()}


@pytest.mark.parametrize("tool", _SCENARIOS)
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_command_means_the_scenario(tool: str, data: st.DataObject) -> None:
    engine, keys, fixed = _SCENARIOS[tool]
    chosen = data.draw(st.lists(st.sampled_from(sorted(keys)), unique=True))
    serve = {"engine": engine, **fixed, **{key: data.draw(keys[key]) for key in chosen}}
    assume((serve.get("quantization"), serve.get("kv_cache_dtype")) != ("fp8", "fp8_e5m2"))  # vLLM refuses it
    scenario = {"model": "Qwen/Qwen2.5-7B", "task": "serve", "gpu": "h100-sxm-80gb", "serve": serve}
    export = vramwise.export(scenario, tool)
    assert [line for line in export.not_expressed if "stands for your own" not in line] == []
    back = {**_back(export), "model": "Qwen/Qwen2.5-7B", "gpu": "h100-sxm-80gb"}
    assert _quantities(back) == _quantities(scenario)


@pytest.mark.parametrize("tool", _SCENARIOS)
@settings(max_examples=5, deadline=None, derandomize=True)
@given(data=st.data())
def test_every_flag_is_one_of_the_engine(tool: str, data: st.DataObject) -> None:
    engine, keys, fixed = _SCENARIOS[tool]
    serve = {key: data.draw(kind) for key, kind in keys.items()}
    scenario = {"model": "Qwen/Qwen2.5-7B", "task": "serve", "serve": {"engine": engine, **fixed, **serve}}
    export = vramwise.export(scenario, tool)
    flags = [word for word in shlex.split(export.command) if word.startswith("--")]
    assert flags
    assert {flag.replace("--no-enable", "--enable") for flag in flags} <= set(flags_of(engine))


def test_vllm_in_its_own_words() -> None:
    scenario = {"model": "llama-3.1-8b", "task": "serve", "gpu": "l40s", "serve": {
        "max_model_len": 8192, "dtype": "bf16", "enable_prefix_caching": False, "max_loras": 2,
        "limit_mm_per_prompt": {"image": 2}, "speculative": {"method": "ngram", "num_tokens": 3},
    }}  # fmt: skip
    assert vramwise.export(scenario, "vllm").command == (
        "vllm serve meta-llama/Llama-3.1-8B --dtype bfloat16 --max-model-len 8192 --limit-mm-per-prompt "
        "'{\"image\": 2}' --no-enable-prefix-caching --enable-lora --max-loras 2 --speculative-config "
        '\'{"method": "ngram", "num_speculative_tokens": 3}\''
    )


@pytest.mark.parametrize("engine", [{}, {"engine": "llama.cpp", "gguf_quant": "Q4_K_M"}])
def test_the_length_of_a_request_is_llama_servers_context(engine: dict[str, str]) -> None:
    serve = {"max_model_len": 8192, **engine}
    export = vramwise.export({"model": "llama-3.1-8b", "task": "serve", "gpu": "l40s", "serve": serve}, "llama-server")
    assert " --ctx-size 8192" in export.command
    assert [line.partition(":")[0] for line in export.not_expressed] == ["model"]


@pytest.mark.parametrize(("version", "flag"), [("0.5.13", "--cuda-graph-max-bs"), (None, "--cuda-graph-max-bs-decode")])
def test_sglangs_flag_as_the_version_has_it(version: str | None, flag: str) -> None:
    serve = {"engine": "sglang", "cuda_graph_max_bs": 8} | ({"engine_version": version} if version else {})
    export = vramwise.export({"model": "Qwen/Qwen2.5-7B", "task": "serve", "serve": serve}, "sglang")
    assert f" {flag} 8" in export.command


def test_what_has_no_words_is_said_with_what_it_changes() -> None:
    scenario = {
        "model": "llama-3.1-8b",
        "task": "serve",
        "serve": {"quantization": "w8a8", "quantization_group_size": 32},
    }
    said = vramwise.export(scenario, "vllm").not_expressed
    assert any(line.startswith("quantization: w8a8 cannot be said") for line in said)
    assert any(line.startswith("memory: ") for line in said)


@pytest.mark.parametrize(("tool", "gpus"), [("sglang", 1), ("vllm", 2)])
def test_a_manifest_asks_for_the_gpus_of_its_layout(tool: str, gpus: int) -> None:
    serve = {"engine": tool, "tensor_parallel_size": gpus, "max_model_len": 4096}
    export = vramwise.export({"model": "qwen3-8b", "task": "serve", "serve": serve}, "k8s")
    pod = yaml.safe_load(export.text)["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": gpus}}
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
    assert "Qwen/Qwen3-8B" in pod["containers"][0]["args"]


def test_a_manifest_is_read_back_by_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "deployment.yaml"
    asked = ["qwen3-8b", "--task", "serve", "--gpu", "l40s", "--max-model-len", "8192"]
    assert main(["estimate", *asked, "--export", "k8s", "-o", str(file)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"{file}: the manifest\nrun: kubectl apply -f {file}\n"
    assert main(["estimate", str(file), "--gpu", "l40s", "--json"]) == 0
    back = json.loads(capsys.readouterr().out)
    main(["estimate", *asked, "--json"])
    assert back["quantities"] == json.loads(capsys.readouterr().out)["quantities"]


def test_a_file_that_is_there_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "serve.sh"
    file.write_text("mine")
    assert main(["estimate", "qwen3-8b", "--export", "vllm", "-o", str(file)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_the_command_line_writes_the_command_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "qwen3-8b", "--export", "vllm", "--max-model-len", "4096"]) == 0
    assert capsys.readouterr() == ("vllm serve Qwen/Qwen3-8B --max-model-len 4096\n", "")


def test_json_has_the_export_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "llama-3.1-70b", "--export", "vllm", "--gpu", "l40s", "--json"]) == 3
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["export"]["tool"] == "vllm"
    assert found["export"]["text"].startswith("vllm serve ")
    assert found["export"]["not_expressed"] == []
    assert found["verdict"]["fits"] is False
    assert "does not fit: needs " in said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--export", "vlm"], 'unknown tool "vlm": did you mean vllm?'),
        (["--export", "vllm", "--task", "train"], "vLLM serves models, and the task is train"),
        (["--export", "vllm", "--engine", "sglang"], "the scenario's engine is SGLang"),
        (["--export", "k8s", "--engine", "tgi"], "whose settings Kubernetes does not have"),
        (["--export", "k8s", "--gpu", "mi300x"], "NVIDIA's cards"),
        (["--export", "vllm", "--sweep", "max_model_len=1k,2k"], "leave out --sweep"),
        (["-o", "x"], "add it, or leave out -o"),
    ],
)
def test_what_no_tool_runs_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "qwen3-8b", *words]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert said in found.err
    assert found.err.count("\n") == 1


def test_the_library_names_what_is_wrong() -> None:
    with pytest.raises(UnknownNameError, match="vllm"):
        vramwise.export({"model": "qwen3-8b", "task": "serve"}, "vlm")
    with pytest.raises(UsageError, match="a table of its own"):
        vramwise.export({"model": {"model_type": "llama"}, "task": "serve"}, "vllm")


def test_words_are_quoted_for_the_shell(tmp_path: Path) -> None:
    scenario = {"model": "it's; rm -rf $HOME/Qwen3-8B", "task": "serve"}
    with pytest.raises(vramwise.VramwiseError):
        vramwise.export(scenario, "vllm")
    folder = tmp_path / "it's $HOME; model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}))  # fmt: skip
    export = vramwise.export({**scenario, "model": str(folder)}, "vllm")
    assert shlex.split(export.command) == ["vllm", "serve", str(folder)]


def test_vllm_is_told_how_many_tokens_are_drafted() -> None:
    """It asks for a number; the estimate counts one where none is stated. MTP takes the model's own."""
    for drafts, written in (
        ({"method": "ngram"}, '{"method": "ngram", "num_speculative_tokens": 1}'),
        ({"method": "mtp"}, '{"method": "mtp"}'),
    ):
        scenario = {"model": "deepseek-ai/DeepSeek-V3", "task": "serve", "serve": {"speculative": drafts}}
        assert written in vramwise.export(scenario, "vllm").command
