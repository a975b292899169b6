"""What holds for every answer: schema, sums, intervals, every measured case, and speed of the import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from vramwise.errors import UnsupportedModelError, VramwiseError
from vramwise.estimation import estimate
from vramwise.result import Node, Result
from vramwise.result_schema import result_schema
from vramwise.scenario.definition import engines_of
from vramwise.scenario.names import ENGINES, SERVE_QUANTIZATION

CASES = Path(__file__).parents[2] / "benchmarks" / "cases"
VALIDATOR = jsonschema.Draft202012Validator(result_schema())
MODELS = ("meta-llama/Llama-3.1-8B", "google/gemma-3-27b-it", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b", "gpt2")


def scenarios() -> list[Any]:
    rows = [
        json.loads(line)
        for name in ("serving", "llamacpp")
        for line in (CASES / f"{name}.jsonl").read_text().splitlines()
    ]
    return [pytest.param(row["scenario"], id=row["id"]) for row in rows]


def leaves(node: Node) -> list[Node]:
    return [leaf for child in node.children for leaf in leaves(child)] if node.children else [node]


@pytest.mark.parametrize("scenario", scenarios())
def test_every_measured_case_has_an_answer(scenario: dict[str, Any]) -> None:
    try:
        result = estimate(scenario)
    except UnsupportedModelError as missing:
        pytest.skip(str(missing))
    check(result)


def check(result: Result) -> None:
    VALIDATOR.validate(result.to_dict())
    for name, quantity in result.quantities.items():
        assert quantity.low <= quantity.expected <= quantity.high, name
    for phase in result.phases:
        parts = leaves(phase.components)
        assert sum(leaf.bytes for leaf in parts) == phase.bytes
        for leaf in parts:
            assert leaf.kind == "exact" or leaf.source, leaf.name
    peak = next(phase for phase in result.phases if phase.name == result.peak_phase)
    assert peak.bytes == max(phase.bytes for phase in result.phases)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("ranks", [1, 8])
def test_every_engine_serves_every_kind_of_model(engine: str, model: str, ranks: int) -> None:
    if model == "gpt2":
        ranks = min(ranks, 4)  # 12 heads
    if engine not in engines_of("tensor_parallel_size"):
        ranks = 1
    serve = {"engine": engine, "tensor_parallel_size": ranks} if ranks > 1 else {"engine": engine}
    check(estimate({"model": model, "task": "serve", "gpu": "h100-sxm-80gb", "num_gpus": ranks, "serve": serve}))
    check(estimate({"model": model, "task": "load", "gpu": "rtx-4090", "serve": serve}))


@pytest.mark.parametrize("name", [name for name in SERVE_QUANTIZATION if name != "gguf"])
def test_every_quantization_makes_weights_smaller(name: str) -> None:
    engine = "mlx" if name.startswith("mlx") else "vllm"
    table = {"engine": engine, "quantization": name}
    plain, small = (
        estimate({"model": MODELS[0], "task": "load", "serve": serve}) for serve in ({"engine": engine}, table)
    )
    bits = 16 * small.quantities["weights"].expected / plain.quantities["weights"].expected
    assert bits < 10 or name == "mxfp4"  # which quantizes experts alone
    check(small)


def test_gguf_without_a_file_type_is_one_clear_line() -> None:
    with pytest.raises(VramwiseError, match="gguf_quant"):
        estimate({"model": MODELS[0], "task": "load", "serve": {"engine": "vllm", "quantization": "gguf"}})


def test_loading_imports_nothing_heavy() -> None:
    program = (
        "import sys; from vramwise.estimation import estimate; estimate({'model': 'gpt2', 'task': 'load'});"
        "print(sorted({'torch', 'transformers', 'numpy', 'rich', 'vramwise.serving.vllm',"
        "'vramwise.serving.common.kv_cache', 'vramwise.serving.llama_cpp',"
        "'vramwise.serving.transformers.generate'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
