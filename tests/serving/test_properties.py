"""Any settings give an answer that holds together, or one clear error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from by_turns import is_thorough
from vramwise.engines import engine_named
from vramwise.errors import ScenarioError, VramwiseError
from vramwise.estimation import estimate
from vramwise.scenario import names

MODELS = ("meta-llama/Llama-3.1-8B", "google/gemma-3-27b-it", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b", "gpt2")
CARDS = ("h100-sxm-80gb", "rtx-4090", "t4", "mi300x", "b200", "rtx-3060-12gb")


def one(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


COMMON = {
    "engine_version": one("0.5.4", "0.7.3", "0.8.5", "0.11.2", "0.33.0", "b3000", "b9999", "main"),
    "dtype": one(*names.SERVE_DTYPES),
    "quantization": one(*(name for name in names.SERVE_QUANTIZATION if name != "gguf")),
    "kv_cache_dtype": one(*names.KV_CACHE_DTYPES),
    "max_model_len": one(1, 7, 4096, 1_000_000),
    "gpu_memory_utilization": one(0.01, 0.5, 1.0),
    "max_num_seqs": one(1, 3, 4096),
    "max_num_batched_tokens": one(1, 100_000),
    "block_size": one(1, 16, 128),
    "max_loras": one(1, 4),
    "expert_parallel": st.booleans(),
    "enforce_eager": st.booleans(),
    "speculative": one({"method": "eagle", "num_tokens": 3}, {"method": "ngram"}),
}
LLAMA_CPP = {
    "gguf_quant": one(*names.GGUF_QUANTS),
    "n_ctx": one(1, 512, 100_000),
    "n_batch": one(1, 4096),
    "n_ubatch": one(1, 4096),
    "flash_attn": st.booleans(),
    "cache_type_k": one(*names.LLAMA_CPP_CACHE_TYPES),
    "cache_type_v": one(*names.LLAMA_CPP_CACHE_TYPES),
    "n_gpu_layers": one(0, 1, 10, 99),
    "n_parallel": one(1, 4, 64),
    "kv_unified": st.booleans(),
    "n_cpu_moe": one(0, 5),
    "variant": one(*names.LLAMA_CPP_VARIANTS),
    "mla_attn": one(0, 1, 2, 3),
    "override_tensor": one(["exps=CPU"], ["(=CPU"]),
}


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    engine = draw(one(*names.ENGINES))
    optional = COMMON | (LLAMA_CPP if engine_named(engine).reads_gguf else {})
    serve = draw(st.fixed_dictionaries({"engine": st.just(engine)}, optional=optional))
    ranks = draw(one(1, 2, 8))
    card = draw(st.fixed_dictionaries({}, optional={"gpu": one(*CARDS), "gpu_total_bytes": one(1, 10**9, 10**12)}))
    serve["tensor_parallel_size"] = ranks
    return {"model": draw(one(*MODELS)), "task": draw(one("serve", "load")), "num_gpus": ranks, "serve": serve, **card}


@settings(max_examples=150 if is_thorough() else 60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_any_settings(scenario: dict[str, Any]) -> None:
    try:
        result = estimate(scenario)
    except VramwiseError:
        return
    again = estimate(dict(result.scenario))
    assert again.quantities == result.quantities
    assert (again.phases, again.ranks, again.capacity) == (result.phases, result.ranks, result.capacity)
    assert all(value.low >= 0 for value in result.quantities.values())
    for phase in result.phases:
        assert phase.components.low <= phase.bytes <= phase.components.high
    assert (again.verdict is None) == (result.verdict is None)
    if result.verdict is not None:
        if not engine_named(scenario["serve"]["engine"]).reads_gguf:  # whose need is that of the fullest card
            needed, card = result.quantities["total_needed"].expected, result.capacity
            assert card is not None
            assert result.verdict.fits == (needed <= card.usable_bytes)
        # advice may differ: what was left open follows a changed length, what is written does not
        assert replace(again.verdict, reasons=()) == replace(result.verdict, reasons=())
        first, second = (_of_sizes(answered.verdict.reasons) for answered in (result, again))
        assert first[0] == second[0]
        assert result.verdict.fits == (not result.quantities["oom"].expected)
        assert not result.verdict.fits or result.verdict.headroom_bytes >= 0
        assert result.verdict.reasons


def _of_sizes(reasons: tuple[str, ...]) -> list[str]:
    """Reasons without what llama.cpp itself puts on the host, which is no news where it was asked for."""
    return [reason for reason in reasons if not reason.endswith("on the host")]


def test_a_default_of_tokens_below_the_requests_is_refused_as_a_given_one_is() -> None:
    """vLLM 0.5.4 config.py SchedulerConfig: chunked prefill, on for long models, takes 512 tokens a step."""
    serve = {"engine": "vllm", "engine_version": "0.5.4", "max_num_seqs": 4096}
    with pytest.raises(ScenarioError, match="512 is less than max_num_seqs 4,096"):
        estimate({"model": "meta-llama/Llama-3.1-8B", "task": "serve", "serve": serve})


def test_a_format_that_the_assumed_version_has_lost_leaves_the_version_open() -> None:
    scenario = {"model": "gpt2", "task": "serve", "serve": {"engine": "vllm", "quantization": "bitsandbytes-nf4"}}
    result = estimate(scenario)
    assert result.scenario["serve"].get("engine_version") is None
    assert estimate(dict(result.scenario)).quantities == result.quantities
