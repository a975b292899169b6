"""Advice is followed: the scenario that it names fits, and a limit that it names is the last one that does."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramwise.errors import VramwiseError
from vramwise.estimation import estimate
from vramwise.planner.in_the_way import reasons_of
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.serving.common import advice
from vramwise.serving.common.advice import NOTHING, Trials, said
from vramwise.site import _in_force, asking
from vramwise.sources.catalog import catalog
from vramwise.units import GIB
from vramwise.verdict import Advice, LateReasons

CARDS = (
    "rtx-3060-12gb", "rtx-4090", "t4", "l4", "l40s", "a100-80gb", "h100-sxm-80gb", "p100", "a10-24gb", "rtx-4060",
)  # fmt: skip
ENGINES = ("vllm", "sglang", "tgi", "tensorrt-llm")
CHANGE = re.compile(r"(\w+) to ([\w.,-]+)")


def one(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def changes_of(reason: str) -> dict[str, Any]:
    """`set KEY to VALUE and KEY to VALUE` as settings."""
    found = CHANGE.findall(reason.removeprefix("set "))
    return {key: value if not value[0].isdigit() else json.loads(value.replace(",", "")) for key, value in found}


def followed(scenario: dict[str, Any], changes: dict[str, Any]) -> Result:
    serve = {**scenario["serve"], **{k: (v == "true" if v in ("true", "false") else v) for k, v in changes.items()}}
    ranks = serve.get("tensor_parallel_size", 1) * serve.get("pipeline_parallel_size", 1)
    return estimate({**scenario, "serve": serve, "num_gpus": max(scenario.get("num_gpus", 1), ranks)})


def assert_advice_works(scenario: dict[str, Any]) -> list[str]:
    result = estimate(scenario)
    assert result.verdict is not None
    needed, usable = result.quantities["total_needed"].expected, result.capacity.usable_bytes  # type: ignore[union-attr]
    assert result.verdict.fits == (needed <= usable)
    advice = [reason for reason in result.verdict.reasons if reason.startswith("set ")]
    for reason in advice:
        changes = changes_of(reason)
        verdict = followed(scenario, changes).verdict
        assert verdict is not None
        assert verdict.fits, f"{reason}: {list(verdict.reasons)}"
        if "max_model_len" in changes:
            longer = {**changes, "max_model_len": changes["max_model_len"] + 1}
            assert not fits(scenario, longer), f"{reason} is not the most"
        share = next((key for key in changes if key in ("gpu_memory_utilization", "mem_fraction_static")), None)
        if share is not None:
            present = result.scenario["serve"][share]
            nearer = round(changes[share] + (0.01 if changes[share] < present else -0.01), 2)
            assert (nearer - present) * (changes[share] - present) <= 0 or not fits(scenario, {share: nearer}), reason
    return advice


def fits(scenario: dict[str, Any], changes: dict[str, Any]) -> bool:
    try:
        verdict = followed(scenario, changes).verdict
    except VramwiseError:
        return False
    assert verdict is not None
    return verdict.fits


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    model=st.sampled_from(sorted(one.id for one in catalog())), engine=one(*ENGINES), gpu=one(*CARDS),
    serve=st.fixed_dictionaries(
        {},
        optional={
            "max_model_len": one(1000, 4096, 131_072, 1_000_000),
            "tensor_parallel_size": one(2, 4, 8),
            "quantization": one("awq", "fp8"),
            "gpu_memory_utilization": one(0.5, 0.9, 0.99, 1.0),
            "mem_fraction_static": one(0.5, 0.9, 0.99),
            "enforce_eager": st.booleans(),
        },
    ),
)  # fmt: skip
def test_followed_advice_fits(model: str, engine: str, gpu: str, serve: dict[str, Any]) -> None:
    if engine != "sglang":
        serve.pop("mem_fraction_static", None)
    else:
        serve.pop("gpu_memory_utilization", None)
    ranks = serve.get("tensor_parallel_size", 1)
    scenario = {"model": model, "task": "serve", "gpu": gpu, "num_gpus": ranks, "serve": {"engine": engine, **serve}}
    try:
        estimate(scenario)
    except VramwiseError:
        return
    assert_advice_works(scenario)


@pytest.mark.parametrize(
    ("model", "card", "serve"),
    [
        ("t5-3b", "rtx-3060-12gb", {"engine": "vllm", "tensor_parallel_size": 8}),
        ("gpt2", "rtx-4090", {"engine": "vllm", "gpu_memory_utilization": 1.0}),
        ("bigscience/bloom-3b", 12_243_760_470, {"engine": "vllm", "engine_version": "0.11.2", "dtype": "fp32"}),
        (
            "togethercomputer/RedPajama-INCITE-Base-3B-v1", "rtx-4090",
            {"engine": "vllm", "quantization": "fp8", "tensor_parallel_size": 2, "max_model_len": 131072},
        ),
        ("Qwen/Qwen1.5-4B-Chat", "rtx-3060-12gb", {"engine": "vllm", "tensor_parallel_size": 2}),
        (
            "nvidia/Nemotron-H-56B-Base-8K", "l40s",
            {"engine": "sglang", "quantization": "awq", "max_model_len": 1_000_000},
        ),
        ("nvidia/Kimi-K2.5-NVFP4", "a100-80gb", {"engine": "tensorrt-llm", "max_model_len": 131_072}),
        ("microsoft/Phi-3-medium-4k-instruct", "t4", {"engine": "tensorrt-llm"}),
        (
            "XiaomiMiMo/MiMo-7B-Base", "rtx-4090",
            {"engine": "sglang", "quantization": "awq", "tensor_parallel_size": 2, "max_model_len": 1_000_000},
        ),
        (
            "Qwen/Qwen3-Next-80B-A3B-Instruct", "h100-sxm-80gb",
            {"engine": "tensorrt-llm", "tensor_parallel_size": 2, "max_model_len": 1_000_000},
        ),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "l4", {"engine": "vllm", "tensor_parallel_size": 2}),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", "l4", {"engine": "sglang", "quantization": "fp8"}),
        ("meta-llama/Llama-3.1-8B", "rtx-4060", {"engine": "vllm"}),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "a10-24gb", {"engine": "sglang"}),
    ],
)  # fmt: skip
def test_advice_that_once_did_not_work(model: str, card: str | int, serve: dict[str, Any]) -> None:
    where = {"gpu": card} if isinstance(card, str) else {"gpu_total_bytes": card}
    ranks = serve.get("tensor_parallel_size", 1)
    try:
        assert_advice_works({"model": model, "task": "serve", **where, "num_gpus": ranks, "serve": serve})
    except VramwiseError as refused:
        pytest.skip(str(refused))


def test_unequal_cards_are_shared_out_whole() -> None:
    """Two ranks do not divide three cards."""
    table = {"engine": "vllm", "gguf_quant": "F16", "quantization": "gguf"}
    scenario = {"model": "meta-llama/Llama-Guard-3-8B", "task": "serve", "serve": table,
                "gpus": ["l40s", "h100-sxm-80gb", "rtx-4090"]}  # fmt: skip
    verdict = estimate(scenario).verdict
    assert verdict is not None
    assert not any("tensor_parallel_size" in reason for reason in verdict.reasons)
    (shorter,) = (reason for reason in verdict.reasons if reason.startswith("set max_model_len to "))
    fitting = estimate({**scenario, "serve": {**table, **changes_of(shorter)}}).verdict
    assert fitting is not None
    assert fitting.fits


def test_advice_leaves_free_what_must_stay_free() -> None:
    """TensorRT-LLM's pool fills its share of the card however few weights are on it."""
    scenario = {"model": "Qwen/Qwen1.5-MoE-A2.7B-Chat-GPTQ-Int4", "task": "serve", "reserve_bytes": 16 * GIB,
                "gpu": "rtx-pro-4000-blackwell-sff", "serve": {"engine": "tensorrt-llm", "dtype": "fp16"}}  # fmt: skip
    assert_advice_works(scenario)


def test_more_ranks_come_with_whole_experts_where_the_engine_refuses_to_cut_them() -> None:
    scenario = {
        "model": "Qwen/Qwen3-235B-A22B-FP8", "task": "serve", "gpu": "a100-sxm-40gb",
        "serve": {"engine": "vllm", "engine_version": "0.19.0", "tensor_parallel_size": 4},
    }  # fmt: skip
    verdict = estimate(scenario).verdict
    assert verdict is not None
    assert not verdict.fits
    assert "set tensor_parallel_size to 8 and expert_parallel to true" in verdict.reasons


@pytest.mark.parametrize(
    ("where", "engine_version", "half"),
    [({"gpu_total_bytes": 12_243_760_470}, "0.11.2", "bf16"), ({"gpu": "t4"}, "0.33.0", "fp16")],
)
def test_what_is_computed_in_32_bits_may_be_computed_in_16(
    where: dict[str, Any], engine_version: str, half: str
) -> None:
    serve = {"engine": "vllm", "engine_version": engine_version, "dtype": "fp32"}
    advice = assert_advice_works({"model": "bigscience/bloom-3b", "task": "serve", **where, "serve": serve})
    assert f"set dtype to {half}" in advice


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpu_memory_utilization": 0.97, "enforce_eager": True},
         "set gpu_memory_utilization to 0.97 and enforce_eager to true"),
        ({"max_model_len": 4096, "dtype": "bf16"}, "set max_model_len to 4,096 at most and dtype to bf16"),
        ({"kv_cache_memory_bytes": 12_345_678_901}, "set kv_cache_memory_bytes to 12345678901"),
        ({"n_ctx": 10_240, "tensor_split": (8.0, 25.0)}, "set n_ctx to 10,240 and tensor_split to 8,25"),
    ],
)  # fmt: skip
def test_advice_carries_what_it_says(change: dict[str, Any], words: str) -> None:
    found = pickle.loads(pickle.dumps(said(change)))
    assert (found, found.values, type(found)) == (words, change, Advice)


@pytest.mark.parametrize("card", ["t4", "h100-sxm-80gb"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("meta-llama/Llama-3.1-405B", {}),
        ("meta-llama/Llama-3.1-70B", {"max_model_len": 300}),
        ("Qwen/Qwen3-235B-A22B-FP8", {"tensor_parallel_size": 8, "max_model_len": 256}),
    ],
)
def test_whether_there_is_advice_is_known_without_all_of_it(
    model: str, more: dict[str, Any], engine: str, card: str
) -> None:
    serve = {"engine": engine, **more}
    ranks = serve.get("tensor_parallel_size", 1)
    scenario = {"model": model, "task": "serve", "gpu": card, "num_gpus": ranks, "serve": serve}
    try:
        verdict = estimate(scenario).verdict
    except VramwiseError as refused:
        pytest.skip(str(refused))
    assert verdict is not None
    reasons = verdict.reasons
    if isinstance(reasons, LateReasons):
        first = reasons.without_changes()
        assert first == tuple(reason for reason in reasons if not isinstance(reason, Advice))
        assert first == reasons.without_changes()
        assert (NOTHING in first) == (len(first) == len(reasons))


def test_why_a_row_does_not_fit_takes_no_search_for_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Mapping[str, object]] = []
    need = Trials.need

    def noted(self: Trials, changes: Mapping[str, object]) -> int:
        tried.append(changes)
        return need(self, changes)

    monkeypatch.setattr(Trials, "need", noted)
    result = estimate({"model": "meta-llama/Llama-3.1-8B", "task": "serve", "gpu": "rtx-4090"})
    assert reasons_of(result)
    few = len(tried)
    assert result.verdict is not None
    assert any(reason.startswith("set max_model_len") for reason in result.verdict.reasons)
    assert few <= 3 < len(tried) - few


def test_advice_is_given_by_the_site_of_its_estimate() -> None:
    """It is worked out after the estimate, when nobody else is asking by that site any more."""

    def advice() -> Iterator[str]:
        yield "set a to b" if _in_force.get() is force else NOTHING

    with asking() as force:
        reasons = LateReasons(["what is short"], advice, advice)
    assert reasons.without_changes() == ("what is short", "set a to b")
    assert tuple(reasons) == ("what is short", "set a to b")


def test_what_a_search_comes_to_twice_is_answered_once_but_where_a_site_is_asked(monkeypatch):
    asked = {"model": "llama-3.1-8b", "task": "serve", "gpu": "rtx-4060", "serve": {"engine": "vllm"}}
    answered: list[str] = []
    own = advice._told_by

    def told_by(again: advice.Again, changed: Scenario) -> advice._Told:
        answered.append(repr(changed))
        return own(again, changed)

    monkeypatch.setattr(advice, "_told_by", told_by)

    def reasons() -> tuple[str, ...]:
        verdict = estimate(asked).verdict
        assert verdict is not None
        return tuple(verdict.reasons)

    first, many = reasons(), len(answered)
    assert many == len(set(answered))
    assert reasons() == first
    assert len(answered) == many
    with asking():
        result = estimate(asked, site=None)
    assert tuple(result.verdict.reasons) == first  # type: ignore[union-attr]
