"""The input of AISimulate has the fields of its documentation and the estimate's cache."""

from __future__ import annotations

import pytest
import yaml

import vramwise
from vramwise.cli.main import main
from vramwise.errors import UsageError

# docs/replay/engine/{README,workers,kv-cache,kv-transfer}.md and docs/replay/workloads.md
ENGINE = {"mode", "model", "hardware", "backend", "context_length", "workers", "kv_transfer", "kvcache_quant_mode"}
WORKER = {"hardware", "parallelism", "scheduler", "kv_cache"}
PARALLELISM = {"replicas", "tensor", "pipeline", "attention_data", "moe_tensor", "moe_expert"}
SCHEDULER, CACHE = {"max_batched_tokens", "max_sequences"}, {"block_size", "prefix_caching", "capacity"}


def checked(document):
    engine = document["engine"]
    assert set(engine) <= ENGINE
    for role in engine["workers"].values():
        assert set(role) <= WORKER
        assert set(role["parallelism"]) <= PARALLELISM
        assert set(role["scheduler"]) <= SCHEDULER
        assert set(role["kv_cache"]) <= CACHE
    return engine


@pytest.mark.parametrize(("engine", "backend"), [("vllm", "vllm"), ("sglang", "sglang"), ("tensorrt-llm", "trtllm")])
def test_a_server_as_the_simulators_input(engine, backend):
    serve = {"engine": engine, "max_model_len": 8192}
    scenario = {"model": "qwen3-8b", "task": "serve", "gpu": "h100-sxm-80gb", "serve": serve}
    export = vramwise.export(scenario, "aisimulate")
    found = checked(yaml.safe_load(export.text))
    assert (found["mode"], found["backend"], found["hardware"]) == ("aggregated", backend, "h100_sxm")
    assert found["model"] == "Qwen/Qwen3-8B"
    assert found["context_length"] == 8192
    blocks = vramwise.estimate(scenario).quantities.get("kv_cache_blocks")
    capacity = found["workers"]["aggregated"]["kv_cache"].get("capacity")
    assert capacity == (None if blocks is None else {"type": "fixed", "blocks": int(blocks.expected)})
    assert export.command == "aisimulate predict --config aisimulate.yaml"


def test_experts_and_a_narrow_cache_have_their_fields():
    serve = {"engine": "vllm", "tensor_parallel_size": 2, "expert_parallel": True, "kv_cache_dtype": "fp8_e4m3",
             "max_model_len": 8192}  # fmt: skip
    scenario = {"model": "qwen3-30b-a3b", "task": "serve", "gpu": "h200", "num_gpus": 2, "serve": serve}
    found = checked(yaml.safe_load(vramwise.export(scenario, "aisimulate").text))
    assert found["kvcache_quant_mode"] == "fp8"
    assert found["workers"]["aggregated"]["parallelism"]["moe_expert"] == 2


@pytest.mark.parametrize(
    ("gpu", "engine", "words"),
    [("rtx-4090", "vllm", "no measured kernels"), ("h100-sxm-80gb", "llama.cpp", "does not")],
)
def test_what_it_does_not_simulate_is_refused(gpu, engine, words):
    with pytest.raises(UsageError, match=words):
        vramwise.export({"model": "qwen3-8b", "task": "serve", "gpu": gpu, "serve": {"engine": engine}}, "aisimulate")


def test_prefill_and_decode_apart(tmp_path, capsys):
    path = tmp_path / "load.yaml"
    words = ["plan", "qwen3-30b-a3b", "--goal", "run", "--engine", "vllm", "--gpu", "h200", "--request-rate", "100",
             "--input-tokens", "4096", "--output-tokens", "512"]  # fmt: skip
    assert main([*words, "--option", "1", "--export", "aisimulate", "-o", str(path)]) == 0
    document = yaml.safe_load(path.read_text())
    found = checked(document)
    assert document["traffic"]["source"] == {"type": "synthetic", "input_tokens": 4096, "output_tokens": 512}
    assert document["traffic"]["load"] == {"type": "poisson", "requests_per_second": 100.0}
    assert set(found["workers"]) == {"prefill", "decode"}
    assert found["kv_transfer"]["bytes_per_token"] == pytest.approx(48 * 4 * 128 * 2 * 2, rel=1e-4)
    for role in found["workers"].values():
        assert role["parallelism"]["moe_tensor"] == role["parallelism"]["tensor"]
    capsys.readouterr()
