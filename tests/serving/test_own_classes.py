"""Which version of an engine has a class for a type of model: before it the model is refused, or another class runs.

The rows are the registries of the released sources (models/type_facts.csv, `no_class`).
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from vramwise.engines import engine_named
from vramwise.errors import ScenarioError
from vramwise.estimation import estimate
from vramwise.models.type_facts import facts

QWEN3, GPT_OSS, MLLAMA = "Qwen/Qwen3-8B", "openai/gpt-oss-20b", "meta-llama/Llama-3.2-11B-Vision-Instruct"
NVFP4 = "nvidia/DeepSeek-V3.1-NVFP4"


def notes(model: str, version: str | None, engine: str = "vllm") -> tuple[str, ...]:
    serve = {"engine": engine, "max_model_len": 4096, **({"engine_version": version} if version else {})}
    result = estimate({"model": model, "task": "serve", "gpu": "h100-sxm-80gb", "serve": serve})
    return tuple(note for note in result.notes if "has no class" in note)


@pytest.mark.parametrize(
    ("model", "engine", "version", "said"),
    [
        (QWEN3, "vllm", "0.6.6", "vLLM 0.6.6 has no class for qwen3 (models/registry.py; 0.8.4 is the first)"),
        (QWEN3, "vllm", "0.7.1", "say engine_version 0.8.4 or newer"),
        (QWEN3, "sglang", "0.4.4", "SGLang 0.4.4 has no class for qwen3 (srt/models; 0.4.6 is the first)"),
        ("t5-3b", "vllm", "0.6.6", "take another engine"),
        (GPT_OSS, "vllm", "0.9.0", "vLLM 0.9.0 does not know mxfp4 weights"),
        (GPT_OSS, "vllm", "0.10.0", "0.10.1 is the first"),
        (GPT_OSS, "sglang", "0.4.9", "SGLang 0.4.9 does not know mxfp4 weights (srt/layers/quantization; 0.5 is the"),
        (NVFP4, "vllm", "0.7.3", "vLLM 0.7.3 does not know modelopt nvfp4 weights (layers/quantization; 0.8 is the"),
        (NVFP4, "sglang", "0.4.4", "0.4.5 is the first"),
    ],
)
def test_a_version_without_the_class_or_the_format_is_refused(model: str, engine: str, version: str, said: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        notes(model, version, engine)
    assert refusal.value.path == "serve.engine_version"
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("model", "engine", "version", "said"),
    [
        (QWEN3, "vllm", "0.7.2", "vLLM 0.7.2 has no class of its own for qwen3 (0.8.4 is the first)"),
        (QWEN3, "vllm", "0.8.3", "it runs transformers' where that can be"),
        ("LiquidAI/LFM2-1.2B", "sglang", "0.5.7", "SGLang 0.5.7 has no class of its own for lfm2 (0.5.9 is the first)"),
        (MLLAMA, "vllm", "0.11.0", "(0.10.2 was the last)"),
        ("t5-3b", "vllm", None, "vLLM has no class of its own for t5: it runs"),
    ],
)
def test_where_transformers_class_may_run_the_answer_says_so(model: str, engine: str, version: str, said: str) -> None:
    (note,) = notes(model, version, engine)
    assert said in note


@pytest.mark.parametrize(
    ("model", "engine", "version"),
    [
        (QWEN3, "vllm", "0.8.4"), (QWEN3, "vllm", "0.8"), (QWEN3, "vllm", None), (QWEN3, "sglang", "0.4.6"),
        (QWEN3, "vllm", "0.6.6.post2.dev242"), (GPT_OSS, "vllm", "0.10.1"), (MLLAMA, "vllm", "0.10.2"),
    ],
)  # fmt: skip
def test_a_version_with_the_class_is_answered_without_a_word(model: str, engine: str, version: str | None) -> None:
    assert notes(model, version, engine) == ()


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_no_type_is_absent_twice_in_a_version(engine: str) -> None:
    """A type is there from one version on, up to another: rows before and after it do not meet."""
    rows = facts()[engine, "no_class"]
    for kind in sorted(set().union(*(row.types for row in rows))):
        spans = sorted((row.start, row.stop or (999,)) for row in rows if kind in row.types)
        assert all(before[1] <= after[0] for before, after in pairwise(spans)), kind
    assert engine_named(engine).others_since
