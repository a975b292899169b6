"""Graphs of llama.cpp, replayed through ggml's allocator, reserve what llama.cpp itself reserves, to the byte.

`tests/golden/llama_cpp_reservations.jsonl`: compute buffers of llama.cpp 0c1e57098 on devices that stand for CUDA's
(`benchmarks/oracles/llama_cpp` makes them anew), by model, batch, sequences, kinds of attention, one device, two or
none, with layers (`ngl` is how many are not), experts or the cache on the host; with a `backend`, after that backend's
own code has put the graph in order.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import vramwise
from vramwise.cli.main import main
from vramwise.models import Model, describe
from vramwise.models.type_facts import types_with
from vramwise.scenario import Scenario
from vramwise.serving.llama_cpp.builds import METAL_WIDE_CACHE_BUILD
from vramwise.serving.llama_cpp.devices import layer_devices
from vramwise.serving.llama_cpp.ggml.allocator import Space, reserved
from vramwise.serving.llama_cpp.ggml.reserve import compute_buffers
from vramwise.serving.llama_cpp.ggml.tensors import F32, OUTPUT, Graph, Tensor, leaf, like, matmul, shape, stored, view
from vramwise.serving.llama_cpp.settings import Plan, resolve_plan
from vramwise.sources import resolve
from vramwise.units import MIB

GOLDEN = Path(__file__).parents[1] / "golden" / "llama_cpp_reservations.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()]


@cache
def described(name: str) -> Model:
    found = resolve(name)
    return describe({key: value for key, value in found.config.items() if key != "quantization_config"}, found.id)


def plan_of(row: dict[str, Any], model: Model) -> Plan:
    serve = {
        "engine": "llama.cpp", "gguf_quant": "BF16", "n_ctx": row["n_ctx"], "n_ubatch": row["n_ubatch"],
        "n_batch": max(2048, row["n_ubatch"]), "n_parallel": row["n_seqs"], "flash_attn": bool(row["flash"]),
        "kv_unified": bool(row["unified"]), "logits_all": row["n_outputs"] > row["n_seqs"],
        "cpu_moe": bool(row.get("cpu_moe")), "no_kv_offload": not row.get("kv_offload", 1),
        "n_gpu_layers": row.get("ngl"),
    }  # fmt: skip
    read = Scenario.from_dict({"model": row["model"], "task": "serve", "num_gpus": row["devices"], "serve": serve})
    pipelined = row["devices"] > 1 and "ngl" not in row
    return replace(resolve_plan(read, model), pipelined=pipelined, backend=row.get("backend", "other"))


def has_graph(row: dict[str, Any]) -> bool:
    return described(row["model"]).config.model_type in types_with("llama.cpp", "graph")


@pytest.mark.oracle
@pytest.mark.parametrize("name", sorted({row["model"] for row in ROWS if has_graph(row)}))
def test_buffers_are_those_that_llama_cpp_reserves(name: str) -> None:
    model = described(name)
    wrong = []
    for row in ROWS:
        if row["model"] == name:
            plan = plan_of(row, model)
            found, reserved = compute_buffers(model, plan, layer_devices(plan)), (*row["compute"], row["host"])
            if found != reserved and not (found and is_near(row) and found == pytest.approx(reserved, rel=0.05)):
                wrong.append((row, found))
    assert not wrong


def is_near(row: dict[str, Any]) -> bool:
    """Three of 1,344: copies of latents without flash attention beside a cache on the host, and Phi 2's biases where
    Metal takes over nothing but products."""
    if row["model"] == "deepseek-ai/DeepSeek-V2-Lite":
        return not row.get("kv_offload", 1) and row.get("backend") in ("vulkan", "metal")
    return (row["model"], row.get("backend"), row.get("ngl")) == ("microsoft/phi-2", "metal", 0)


@pytest.mark.parametrize(
    ("name", "flash", "compute"),
    [
        ("Qwen/Qwen3-0.6B", 1, 40060960),
        ("Qwen/Qwen3-0.6B", 0, 306190368),
        ("Qwen/Qwen3-30B-A3B", 1, 89681440),
        ("Qwen/Qwen3-30B-A3B", 0, 583014432),
        ("google/gemma-2-2b", 1, 97151008),
        ("google/gemma-2-2b", 0, 177743904),
    ],
)
def test_metal_before_its_table_of_runs(name: str, flash: int, compute: int) -> None:
    """As the rows, with the files of ggml-metal that llama-cpp-python 0.3.33 ships (August 2026)."""
    row = {"n_ctx": 8192, "n_ubatch": 512, "n_seqs": 1, "n_outputs": 1, "unified": 1, "devices": 1, "backend": "metal"}
    model = described(name)
    plan = replace(plan_of({**row, "model": name, "flash": flash}, model), build=METAL_WIDE_CACHE_BUILD - 1)
    found = compute_buffers(model, plan, layer_devices(plan))
    assert found is not None
    assert found[0] == compute


@pytest.mark.parametrize(
    ("scenario", "printed"),
    [
        ({"model": "Qwen/Qwen2.5-0.5B-Instruct", "gpu": "Apple M4", "n_ctx": 512}, 300.25),
        ({"model": "Qwen/Qwen3-8B", "gpu": "Apple M4", "n_ctx": 2048}, 312.75),
        ({"model": "meta-llama/Llama-3.2-3B-Instruct", "gpu": "M1 Pro", "n_ctx": 4096, "n_ubatch": 128}, 64.12),
    ],
    ids=["qwen2.5", "qwen3", "llama3.2"],
)
def test_buffers_that_builds_of_2026_print_on_apple_silicon(scenario: dict[str, Any], printed: float) -> None:
    serve = {key: value for key, value in scenario.items() if key not in ("model", "gpu")}
    serve = {"engine": "llama.cpp", "engine_version": "b8600", "gguf_quant": "Q4_K_M", "n_parallel": 1, **serve}
    result = vramwise.estimate({"model": scenario["model"], "task": "serve", "gpu": scenario["gpu"], "serve": serve})
    assert abs(result.quantities["compute_buffer"].expected / MIB - printed) < 0.015


@pytest.mark.parametrize(
    ("more", "card", "host"),
    [
        ({}, 122.52, 32.52),
        ({"override_tensor": [r"per_layer_token_embd\.weight=CUDA0"]}, 115.52, 15.02),
    ],
    ids=["table on the host", "table on the card"],
)
def test_embeddings_for_each_layer_as_logs_of_gemma_4_e2b_print(more: dict[str, Any], card: float, host: float) -> None:
    serve = {"engine": "llama.cpp", "engine_version": "b10500", "gguf_quant": "Q4_0", "n_ctx": 8192, "n_parallel": 1}
    serve |= {"flash_attn": True, "n_gpu_layers": 99, **more}
    scenario = {"model": "google/gemma-4-E2B-it", "task": "serve", "gpu": "RTX 3050", "serve": serve}
    found = vramwise.estimate(scenario).quantities
    assert abs(found["compute_buffer"].expected / MIB - card) < 0.015
    assert abs(found["host_buffer"].expected / MIB - host) < 0.015


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3-0.6B",
        "google/gemma-2-2b",
        "google/gemma-4-E2B-it",
        "mistralai/Mixtral-8x7B-Instruct-v0.1",
    ],
)
@pytest.mark.parametrize(
    "where",
    [{"devices": 0}, {"devices": 1}, {"devices": 2}, {"devices": 1, "ngl": 12}, {"devices": 1, "kv_offload": 0}],
)
def test_layers_that_repeat_need_not_be_built(name: str, where: dict[str, int]) -> None:
    sizes = {"n_ctx": 8192, "n_ubatch": 512, "n_seqs": 2, "flash": 1, "unified": 1, "n_outputs": 2}
    row = {"model": name, **sizes, **where}
    model = described(name)
    plan = plan_of(row, model)
    where = layer_devices(plan)
    assert compute_buffers(model, plan, where) == compute_buffers(model, plan, where, whole=True)


def test_a_hole_that_fits_best_is_filled_and_neighbours_are_joined() -> None:
    space = Space(32)
    first, small, second, large, _ = (space.take(size) for size in (64, 32, 64, 96, 32))
    assert (first, small, second, large) == (0, 64, 96, 160)
    space.give_back(small, 32)
    space.give_back(large, 96)
    assert space.take(20) == small  # the smaller of two holes
    space.give_back(second, 64)
    assert space.take(150) == second  # joined with the hole behind it
    assert space.reached == 288


def chain(*nodes: Tensor) -> Graph:
    graph = Graph()
    for node in nodes:
        graph.expand(node)
    return graph


def bytes_of(graph: Graph) -> int:
    return reserved(graph.nodes, graph.leaves, [0] * len(graph.nodes), [Space(32)])[0]


def product(x: Tensor) -> Tensor:
    return matmul(stored(shape(8, 8), F32, 0, weight=True), x)


def test_an_operation_in_place_takes_over_what_nothing_else_reads() -> None:
    start = leaf(shape(8, 4), F32)
    one = product(start)
    assert bytes_of(chain(like("SCALE", one))) == 256  # input and product
    start = leaf(shape(8, 4), F32)
    one = product(start)
    assert bytes_of(chain(like("ADD", like("SCALE", one), one))) == 256  # the scale lies where the input was
    start = leaf(shape(8, 4), F32)
    one = product(start)
    one.flags |= OUTPUT
    assert bytes_of(chain(product(like("SCALE", one)))) == 384


def test_a_view_keeps_its_root_and_is_not_taken_over() -> None:
    one = product(leaf(shape(8, 4), F32))
    seen = view(one, one.ne, one.nb)
    assert bytes_of(chain(product(like("SCALE", seen)))) == 256  # in the hole of the input, then in the root's


@pytest.mark.parametrize(
    "words",
    [
        "llama-server -m Qwen3-8B-Q4_K_M.gguf -dev Vulkan0",
        "docker run ghcr.io/ggml-org/llama.cpp:server-vulkan -m Qwen3-8B-Q4_K_M.gguf",
    ],
)
def test_vulkan_is_read_from_the_command(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "--gpu", "rx-7900-xtx", "--json", "--", *words.split()]) == 0
    assert json.loads(capsys.readouterr().out)["scenario"]["serve"]["ggml_backend"] == "vulkan"
