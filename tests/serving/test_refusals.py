"""What an engine refuses is refused with its reason; what it warns about is computed with a note."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.errors import ScenarioError
from vramwise.estimation import estimate

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def serve(engine: str = "vllm", gpu: str = "h100-sxm-80gb", gpus: int | None = None, **settings: Any) -> Any:
    scenario: dict[str, Any] = {"model": LLAMA, "task": "serve", "gpu": gpu, "serve": {"engine": engine, **settings}}
    if gpus is not None:
        scenario["num_gpus"] = gpus
    return estimate(scenario)


@pytest.mark.parametrize(
    ("settings", "path", "reason"),
    [
        ({"tensor_parallel_size": 3}, "serve.tensor_parallel_size", "does not divide the 32 attention heads"),
        ({"engine": "sglang", "tensor_parallel_size": 3}, "serve.tensor_parallel_size", "SGLang refuses it"),
        ({"pipeline_parallel_size": 40}, "serve.pipeline_parallel_size", "more than the 32 layers"),
        (
            {"tensor_parallel_size": 4, "decode_context_parallel_size": 3},
            "serve.decode_context_parallel_size", "does not divide tensor_parallel_size 4",
        ),
        (
            {"tensor_parallel_size": 16, "decode_context_parallel_size": 4},
            "serve.decode_context_parallel_size", "set it to 2, or tensor_parallel_size to 32",
        ),
        (
            {"tensor_parallel_size": 4, "decode_context_parallel_size": 2},
            "serve.decode_context_parallel_size", "set it to 1",
        ),
        ({"kv_cache_dtype": "int8"}, "serve.kv_cache_dtype", "expected one of auto"),
        ({"max_num_batched_tokens": 64, "max_num_seqs": 128}, "serve.max_num_batched_tokens", "128 or more"),
        ({"gpu": "v100-sxm2-32gb", "dtype": "bf16"}, "serve.dtype", "set dtype to fp16"),
        ({"gpu": "t4", "quantization": "mxfp4"}, "serve.quantization", "need compute capability 8"),
        ({"gpu": "v100-sxm2-32gb", "quantization": "awq"}, "serve.quantization", "need compute capability 7.5"),
    ],
)  # fmt: skip
def test_what_the_engine_refuses(settings: dict[str, Any], path: str, reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason) as problem:
        serve(**settings)
    assert problem.value.path == path


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ({"max_model_len": 200_000}, "beyond the model's own 131,072"),
        ({"gpus": 8}, "1 of 8 GPUs is used"),
        ({"gpus": 8, "tensor_parallel_size": 2}, "set tensor_parallel_size to 8"),
        ({"gpu": "a100-sxm-80gb", "quantization": "fp8"}, "does not compute in fp8"),
        ({"gpu": "v100-sxm2-32gb"}, "has no bf16"),
    ],
)
def test_what_the_engine_warns_about(settings: dict[str, Any], note: str) -> None:
    result = serve(**settings)
    assert any(note in said for said in result.notes), result.notes


def test_gpus_that_are_all_used_need_no_note() -> None:
    assert not any("GPUs" in note for note in serve(gpus=2, tensor_parallel_size=2).notes)


def test_ranks_that_cut_key_value_heads_unevenly_are_refused():
    config = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 2,
              "num_attention_heads": 30, "num_key_value_heads": 6, "head_dim": 128, "vocab_size": 32000}  # fmt: skip
    with pytest.raises(ScenarioError, match="neither divides the 6 key/value heads"):
        estimate({"model": config, "task": "serve", "serve": {"engine": "vllm", "tensor_parallel_size": 5}})


def test_ranks_that_hold_copies_of_a_head_may_share_its_tokens():
    shared = serve(tensor_parallel_size=16, decode_context_parallel_size=2, gpus=16)
    alone = serve(tensor_parallel_size=16, gpus=16)
    assert shared.quantities["kv_cache_tokens"].expected == 2 * alone.quantities["kv_cache_tokens"].expected


@pytest.mark.parametrize(("card", "refused"), [("v100-sxm2-32gb", True), ("gtx-1080-ti", True), ("t4", False)])
def test_sglang_starts_from_turing_on(card: str, refused: bool) -> None:
    """Its load_model: "SGLang only supports sm75 and above"."""
    scenario = {"model": "gpt2", "task": "serve", "gpu": card, "serve": {"engine": "sglang"}}
    if not refused:
        assert estimate(scenario).quantities
        return
    with pytest.raises(ScenarioError, match=r"SGLang refuses less than 7\.5"):
        estimate(scenario)


@pytest.mark.parametrize(("card", "said"), [("p100", True), ("v100-sxm2-32gb", False)])
def test_vllms_builds_run_from_volta_on(card: str, said: bool) -> None:
    """docs/getting_started/installation of 0.3.3 to 0.14.0: compute capability 7.0 or higher; no start refuses."""
    notes = estimate({"model": "gpt2", "task": "serve", "gpu": card, "serve": {"engine": "vllm"}}).notes
    assert any("vLLM's own builds run from 7.0 on" in note for note in notes) == said
