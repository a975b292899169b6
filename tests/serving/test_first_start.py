"""Starts of vLLM 0.24.0 with and without compiled graphs in its cache, and with captured graphs of several sizes.

Printed by starts of Llama 3.1 8B on A100 (SpecDecoding-Study-vLLM-SGLang server_logs): the same command compiles first
and loads what it compiled the next time.
"""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.result import Quantity
from vramwise.serving.vllm.compilation import FIRST_START
from vramwise.units import GIB

AWQ = "hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
TOTAL = round(79.25 * GIB)


def serve(model: str, total: int = TOTAL, **settings: Any) -> Any:
    table = {"engine": "vllm", "engine_version": "0.24.0", "max_model_len": 8192, "gpu_memory_utilization": 0.85,
             "dtype": "fp16", "enable_prefix_caching": False, **settings}  # fmt: skip
    return estimate({"model": model, "task": "serve", "gpu": "a100-sxm-80gb", "gpu_total_bytes": total, "serve": table})


def cache(model: str, **settings: Any) -> Quantity:
    found: Quantity = serve(model, **settings).quantities["kv_cache_bytes"]
    return found


def test_a_later_start_is_expected_and_a_first_one_lies_inside() -> None:
    """61.65 GiB where compiled graphs were loaded, 60.85 where they were not."""
    found = cache(AWQ, kv_cache_dtype="fp8_e4m3")
    assert found.expected / GIB == pytest.approx(61.65, rel=0.005)
    assert found.low <= 60.855 * GIB  # as printed, with two digits


def test_a_start_can_be_said_to_compile_or_not() -> None:
    """Qwen3 8B on RTX 5090, 0.24.0: 89,040 tokens where it compiled, 95,936 the next time; and AWQ as above."""
    scenario = {"model": "Qwen/Qwen3-8B", "task": "serve", "gpu": "rtx-5090"}
    table = {"engine": "vllm", "engine_version": "0.24.0", "max_model_len": 32768, "flashinfer_sampler": False}
    for first, printed in ((True, 89_040), (False, 95_936)):
        asked = {**scenario, "serve": {**table, "first_start": first}}
        tokens = estimate(asked).quantities["kv_cache_tokens"]
        assert tokens.expected == pytest.approx(printed, rel=0.015)
        assert tokens.low <= printed <= tokens.high
    compiled = cache(AWQ, kv_cache_dtype="fp8_e4m3", first_start=True)
    assert compiled.expected / GIB == pytest.approx(60.85, rel=0.005)
    assert cache(LLAMA, first_start=False).low > cache(LLAMA).low


@pytest.mark.parametrize("settings", [{"enforce_eager": True}, {"engine_version": "0.15.1"}])
def test_nothing_is_compiled_that_is_timed(settings: dict[str, Any]) -> None:
    assert FIRST_START not in str(serve(LLAMA, **settings).to_json())


def test_more_sequences_hide_it() -> None:
    """Sampling of 1,024 sequences takes more than compiling did."""
    assert FIRST_START not in str(serve(LLAMA, engine_version="0.19.0", max_num_seqs=1024).to_json())
    assert FIRST_START in str(serve(LLAMA).to_json())


def test_graphs_of_the_second_runner_are_not_charged_before_0_29() -> None:
    """51.24 GiB with a 16-bit cache (graphs took 0.56 GiB) and with an fp8 one (0.88)."""
    assert cache(LLAMA).expected == cache(LLAMA, kv_cache_dtype="fp8_e4m3").expected
    assert "cuda_graph_estimate" not in serve(LLAMA).quantities
    assert "cuda_graph_estimate" in serve(LLAMA, engine_version="0.29.0").quantities


def test_other_ways_of_drafting_stay_on_the_first_runner() -> None:
    """0.24.0 config/vllm.py: "Model Runner V2 does not yet support ngram"."""
    assert "cuda_graph_estimate" in serve(LLAMA, speculative={"method": "ngram", "num_tokens": 3}).quantities


@pytest.mark.parametrize(("version", "is_charged"), [("0.26.0", False), ("0.27.1", True)])
def test_what_the_second_runners_sampler_keeps_is_charged_from_0_27_on(version: str, is_charged: bool) -> None:
    """mem_utils.py: weights and the peak's increase in 0.26.0, what the process took (total_consumed) in 0.27.1."""
    result = serve(LLAMA, engine_version=version)
    state = result.phases[-1].components.find("sampler state").bytes
    q = result.quantities
    kept = q["weights"].expected + q["non_torch"].expected + q["kv_cache_bytes"].expected
    peak = next(c.bytes for c in result.phases[-1].components.children if c.name.startswith("profile run"))
    assert -(-TOTAL * 85 // 100) - kept - peak == pytest.approx(state if is_charged else 0, abs=2)
