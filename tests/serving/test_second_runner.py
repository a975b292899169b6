"""Which of vLLM's two model runners runs a model (config/vllm.py use_v2_model_runner of 0.22.1 to 0.33.0)."""

from __future__ import annotations

import pytest

from vramwise.estimation import estimate
from vramwise.models import describe
from vramwise.serving.vllm.profile import runs_v2_runner
from vramwise.sources import resolve

LLAMA, QWEN3, LITTLE_QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B"
EXPERTS, STATES, DEEPSEEK = "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3.5-9B", "deepseek-ai/DeepSeek-V4-Flash"

RUNNERS = [
    (QWEN3, (0, 22, 1), {}, True), (QWEN3, (0, 22, 1), {"quantized": True}, False), (LLAMA, (0, 22, 1), {}, False),
    (LLAMA, (0, 24), {"quantized": True}, True), (EXPERTS, (0, 28), {}, False), (STATES, (0, 28), {}, False),
    (EXPERTS, (0, 29), {}, True), (STATES, (0, 29), {}, True),
    (QWEN3, (0, 22, 1), {"pooling": True}, False), (QWEN3, (0, 28), {"pooling": True}, False),
    (QWEN3, (0, 29), {"pooling": True}, True),
    (LLAMA, (0, 28), {"draft": "ngram"}, False), (LLAMA, (0, 29), {"draft": "ngram"}, False),
    (LLAMA, (0, 31), {"draft": "ngram"}, False), (LLAMA, (0, 32), {"draft": "ngram"}, True),
    (LLAMA, (0, 30), {"draft": "draft_model"}, False), (LLAMA, (0, 31), {"draft": "draft_model"}, True),
    (LLAMA, (0, 32), {"draft": "medusa"}, False), (LLAMA, (0, 33), {"draft": "medusa"}, True),
    (LLAMA, (0, 33), {"draft": "suffix"}, False), (LLAMA, (0, 33), {"draft": "eagle3"}, True),
    (DEEPSEEK, (0, 28), {}, False), (DEEPSEEK, (0, 28), {"draft": "dspark"}, True),
    (DEEPSEEK, (0, 29), {}, True), (DEEPSEEK, (0, 29), {"rocm": True}, False),
    (DEEPSEEK, (0, 32), {"rocm": True}, True),
    (LLAMA, (0, 29), {"rocm": True}, True),
]  # fmt: skip


@pytest.mark.parametrize(("model", "version", "asked", "second"), RUNNERS)
def test_the_second_runner_runs(
    model: str, version: tuple[int, ...], asked: dict[str, str | bool], second: bool
) -> None:
    found = describe(resolve(model).config)
    given = {"quantized": False, **asked}
    assert runs_v2_runner(version, found, **given) is second  # type: ignore[arg-type]


@pytest.mark.parametrize(("pooling", "charged"), [(False, False), (True, True)])
def test_a_pooler_pays_for_its_graphs_before_0_29(pooling: bool, charged: bool) -> None:
    """Its runner profiles them (0.26.0 v1/worker/gpu_model_runner.py); the second one's answer is 0."""
    serve = {"engine": "vllm", "engine_version": "0.26.0", "pooling": pooling, "max_model_len": 4096}
    found = estimate({"model": LITTLE_QWEN, "task": "serve", "gpu": "l40s", "serve": serve})
    assert ("cuda_graph_estimate" in found.quantities) is charged
