"""Splits that leave a rank part of a block or a group of quantized weights are refused, with the ways out.

The messages of the engines: "The output_size of gate's and up's weight = 192 is not divisible by weight quantization
block_n = 128" (vLLM up to 0.28, SGLang), "The input size is not aligned with the quantized weight shape" (AWQ).
"""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.errors import ScenarioError
from vramwise.estimation import estimate
from vramwise.result import Result

LARGE, SMALL = "Qwen/Qwen3-235B-A22B-FP8", "Qwen/Qwen3-30B-A3B-FP8"
H100, A100 = "h100-sxm-80gb", "a100-sxm-80gb"


def serve(model: Any, gpu: str | None = H100, **settings: Any) -> Result:
    table = {"engine": "vllm", **settings}
    return estimate({"model": model, "task": "serve", "serve": table, **({"gpu": gpu} if gpu else {})})


def llama(**changes: Any) -> dict[str, Any]:
    return {
        "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 2,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 32000,
        "torch_dtype": "bfloat16", **changes,
    }  # fmt: skip


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}


@pytest.mark.parametrize("version", ["0.8.5", "0.11.0", "0.19.0", "0.28.0"])
@pytest.mark.parametrize(("model", "ranks", "fewer"), [(LARGE, 8, 4), (SMALL, 4, 2)])
def test_vllm_refuses_parts_of_blocks_of_experts(version: str, model: str, ranks: int, fewer: int) -> None:
    with pytest.raises(ScenarioError, match="192 of an expert's") as problem:
        serve(model, tensor_parallel_size=ranks, engine_version=version)
    assert problem.value.path == "serve.tensor_parallel_size"
    assert f"vLLM {version} refuses it" in problem.value.problem
    assert f"--enable-expert-parallel), or tensor_parallel_size to {fewer}" in problem.value.problem


@pytest.mark.parametrize("version", ["0.8.5", "0.19.0", "0.33.0"])
@pytest.mark.parametrize(("model", "ranks"), [(LARGE, 8), (SMALL, 4)])
def test_whole_experts_keep_their_blocks(version: str, model: str, ranks: int) -> None:
    assert serve(model, tensor_parallel_size=ranks, expert_parallel=True, engine_version=version).quantities


@pytest.mark.parametrize("version", ["0.29.0", "0.33.0", None])
@pytest.mark.parametrize("asked", [None, "fp8"])
def test_newer_vllm_cuts_the_blocks_smaller_and_says_that_older_ones_refuse(
    version: str | None, asked: str | None
) -> None:
    result = serve(LARGE, tensor_parallel_size=8, engine_version=version, quantization=asked)
    said = next(note for note in result.notes if "up to 0.28 refuses it" in note)
    assert "cut the blocks smaller (64)" in said
    assert "tensor_parallel_size to 4 for both" in said


def test_cards_without_fp8_kernels_have_none_for_smaller_blocks() -> None:
    with pytest.raises(ScenarioError, match="no kernel takes smaller blocks on this card"):
        serve(LARGE, A100, tensor_parallel_size=8)


def test_data_parallel_ranks_cut_experts_too() -> None:
    with pytest.raises(ScenarioError, match="192 of an expert's 768 rows") as problem:
        serve(SMALL, tensor_parallel_size=2, data_parallel_size=2, engine_version="0.19.0")
    assert "--enable-expert-parallel" in problem.value.problem


@pytest.mark.parametrize("version", ["0.4.6", "0.5.4", "0.5.23", None])
def test_sglang_refuses_them_in_every_version(version: str | None) -> None:
    with pytest.raises(ScenarioError, match=r"--ep-size\), or tensor_parallel_size to 4"):
        serve(LARGE, engine="sglang", tensor_parallel_size=8, engine_version=version)


def test_sglang_checks_no_fused_attention_of_the_types_that_skip_it() -> None:
    assert serve("XiaomiMiMo/MiMo-V2-Flash", engine="sglang", tensor_parallel_size=8).quantities


@pytest.mark.parametrize(
    ("version", "refused"), [("0.9.2", True), ("0.11.0", True), ("0.13.0", True), ("0.14.0", False), (None, False)]
)
def test_fused_columns_need_whole_blocks_until_0_13(version: str | None, refused: bool) -> None:
    model = llama(quantization_config=BLOCKS, num_key_value_heads=2, head_dim=64, num_attention_heads=32)
    if not refused:
        assert serve(model, tensor_parallel_size=2, engine_version=version).quantities
        return
    with pytest.raises(ScenarioError, match="64 rows of k_proj, which blocks of 128"):
        serve(model, tensor_parallel_size=2, engine_version=version)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_columns_of_a_layer_that_ranks_share_need_whole_blocks(engine: str) -> None:
    model = llama(quantization_config=BLOCKS)
    assert serve(model, engine=engine, tensor_parallel_size=4).quantities
    with pytest.raises(ScenarioError, match="blocks of 128 do not divide") as problem:
        serve(model, engine=engine, tensor_parallel_size=8)
    assert problem.value.problem.endswith("set tensor_parallel_size to 4")


@pytest.mark.parametrize(
    ("config", "engine", "rule"),
    [(AWQ, "vllm", "awq.py"), (GPTQ, "vllm", "gptq_marlin.py"), (AWQ, "sglang", "awq.py"), (GPTQ, "sglang", "gptq")],
)
def test_groups_of_the_checkpoint_stay_whole(config: dict[str, Any], engine: str, rule: str) -> None:
    model = llama(quantization_config=config)
    assert serve(model, A100, engine=engine, tensor_parallel_size=4).quantities
    with pytest.raises(ScenarioError, match="704 of 5,632 columns of down_proj, which groups of 128") as problem:
        serve(model, A100, engine=engine, tensor_parallel_size=8)
    assert rule in problem.value.problem


@pytest.mark.parametrize(("gpu", "dtype"), [(A100, "fp16"), (H100, "bf16")])
def test_kernels_of_gptq_that_do_not_ask_are_told_of(gpu: str, dtype: str) -> None:
    notes = serve(llama(quantization_config=GPTQ), gpu, tensor_parallel_size=8, dtype=dtype).notes
    said = next(note for note in notes if "takes the scales of other groups" in note)
    assert said.endswith("; else set tensor_parallel_size to 4")


def test_a_format_that_was_asked_for_may_come_padded() -> None:
    notes = serve("Qwen/Qwen2.5-72B", tensor_parallel_size=2, quantization="awq").notes
    assert any("unless the checkpoint is padded" in note for note in notes)


def test_layers_that_ranks_cannot_share_evenly_are_refused() -> None:
    for engine in ("vllm", "sglang", "tgi"):
        with pytest.raises(ScenarioError, match="4 ranks do not share the 5,461 columns of down_proj evenly"):
            serve(llama(intermediate_size=5461), engine=engine, tensor_parallel_size=4)


def test_loading_for_an_engine_is_refused_as_serving_is() -> None:
    table = {"engine": "vllm", "tensor_parallel_size": 8, "engine_version": "0.19.0"}
    with pytest.raises(ScenarioError, match="192 of an expert's"):
        estimate({"model": LARGE, "task": "load", "serve": table})
    assert estimate({"model": LARGE, "task": "load", "serve": {**table, "expert_parallel": True}}).quantities


def test_groups_that_only_a_name_tells_are_no_reason_to_refuse() -> None:
    """A checkpoint's own config may have smaller groups than others of such a name."""
    notes = serve("someone/Qwen2.5-14B-Instruct-AWQ", tensor_parallel_size=8).notes
    assert any("unless its own config.json says other groups than its name" in note for note in notes)
    with pytest.raises(ScenarioError, match="groups of 128 do not divide"):
        serve("Qwen/Qwen2.5-14B-Instruct-AWQ", tensor_parallel_size=8)


def test_a_block_fp8_model_whose_experts_alone_are_fp8_runs_on_eight_ranks() -> None:
    """Its router, attention, shared experts and dense layers stay in bf16 (NVIDIA/TensorRT-LLM#14759)."""
    assert serve("stepfun-ai/Step-3.7-Flash-FP8", tensor_parallel_size=8).quantities["weights"].expected < 30 * 2**30
