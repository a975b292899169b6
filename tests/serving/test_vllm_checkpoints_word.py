"""What a checkpoint's `quantization_config` says beside its weights: of vLLM's cache, of the layer that drafts."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.result import Result
from vramwise.sources import resolve
from vramwise.units import GIB

GEMMA = "nvidia/Gemma-4-31B-IT-NVFP4"  # ModelOpt: kv_cache_scheme of 8-bit floats
LAGUNA = "poolside/Laguna-XS.2-FP8"  # compressed-tensors: the same
V4_FLASH = "deepseek-ai/DeepSeek-V4-Flash"
KIMI = "nvidia/Kimi-K2.5-NVFP4"


def served(model: Any, version: str, gpu: str = "rtx-pro-6000-blackwell", gpus: int = 1, **more: Any) -> Result:
    settings = {"engine": "vllm", "engine_version": version, "max_model_len": 4096, **more}
    return estimate({"model": model, "task": "serve", "gpu": gpu, "num_gpus": gpus, "serve": settings})


def token_bytes(result: Result) -> float:
    return result.quantities["kv_cache_bytes"].expected / result.quantities["kv_cache_tokens"].expected


@pytest.mark.parametrize(
    ("model", "before", "since"), [(GEMMA, "0.13.0", "0.19.1"), (LAGUNA, "0.14.1", "0.33.0")], ids=["modelopt", "ct"]
)
def test_a_checkpoint_that_states_its_cache_has_that_one(model: str, before: str, since: str) -> None:
    """vLLM 0.14.0 utils/torch_utils.py resolve_kv_cache_dtype_string; 0.15.0 attention/layer.py Attention.__init__."""
    asked = {"fp8": "fp8_e4m3", "whole": "bf16"}
    fp8, whole = (token_bytes(served(model, since, kv_cache_dtype=dtype)) for dtype in asked.values())
    assert fp8 == pytest.approx(whole / 2, rel=0.02)
    assert token_bytes(served(model, since)) == pytest.approx(fp8, rel=1e-3)
    old_whole = token_bytes(served(model, before, kv_cache_dtype="bf16"))
    assert token_bytes(served(model, before)) == pytest.approx(old_whole, rel=1e-3)


def test_another_format_that_is_asked_for_says_nothing_of_the_cache() -> None:
    asked = served(GEMMA, "0.19.1", quantization="fp8")
    assert token_bytes(asked) == pytest.approx(token_bytes(served(GEMMA, "0.19.1", kv_cache_dtype="bf16")), rel=0.02)


def weights(model: Any, gpus: int, version: str, gpu: str, speculative: Any) -> float:
    result = served(model, version, gpu, gpus, tensor_parallel_size=gpus, speculative=speculative)
    return result.quantities["weights"].expected / GIB


def test_the_layer_that_drafts_stands_in_the_checkpoints_eight_bits() -> None:
    """A start on two cards prints 75.64 GiB with it: fp4 experts beside fp8 layers, 80.0 if it were in 16 bits."""
    drafting = weights(V4_FLASH, 2, "0.25.0", "rtx-pro-6000-blackwell", {"method": "mtp", "num_tokens": 2})
    assert drafting == pytest.approx(75.64, rel=0.005)


def test_an_eagle_3_head_of_a_model_of_experts_is_a_dense_layer() -> None:
    """One log of four cards prints 139.49 GiB of the model alone and 140.36 with its head."""
    plain, drafting = (
        weights(KIMI, 4, "0.18.1", "gb200-186gb", speculative)
        for speculative in (None, {"method": "eagle3", "num_tokens": 3})
    )
    assert drafting - plain == pytest.approx(0.87, rel=0.15)


def test_layers_that_keep_every_token_share_blocks_whatever_they_keep() -> None:
    """61 layers of 576 bytes and a head's layer of 16 heads a rank: 39,232 bytes a token, as the same log prints."""
    head = {"method": "eagle3", "num_tokens": 3}
    result = served(KIMI, "0.18.1", "gb200-186gb", 4, tensor_parallel_size=4, speculative=head, kv_cache_dtype="fp8")
    assert token_bytes(result) == pytest.approx(61 * 576 + 2 * 16 * 128, rel=1e-3)
    assert resolve(KIMI).config["text_config"]["kv_lora_rank"] == 512


def test_the_checkpoints_word_is_given_back_in_the_scenarios_own() -> None:
    """`fp8` is another spelling of it: the resolved scenario, asked again, resolved to another."""
    asked = {"model": "poolside/Laguna-XS.2-INT4", "task": "serve", "gpu": "h100", "serve": {"engine": "vllm"}}
    first = estimate(asked)
    assert first.scenario["serve"]["kv_cache_dtype"] == "fp8_e4m3"
    assert estimate(dict(first.scenario)).scenario == first.scenario


def test_an_eagle_3_head_of_gemma_4_has_heads_of_its_own_so_that_layers_share_pages_one_by_one() -> None:
    """0.19.2rc1 on 32 GB: 7.77 GiB are 65,696 tokens of 31 layers' pages."""
    head = {"method": "eagle3", "num_tokens": 3}
    found = served("RedHatAI/gemma-4-26B-A4B-it-NVFP4", "0.19.2", kv_cache_dtype="fp8_e4m3", speculative=head)
    assert token_bytes(found) == pytest.approx(7.77 * GIB / 65_696, rel=0.002)


@pytest.mark.parametrize(
    ("model", "bytes_of_a_token"), [("nvidia/GLM-5.2-NVFP4", 40 * 132), (V4_FLASH, 10 * 132)], ids=["glm", "v4"]
)
def test_an_indexer_gathers_keys_of_forty_contexts(model: str, bytes_of_a_token: int) -> None:
    """Of a fourth of the keys in DeepSeek V4. GLM-5.2 on four GB200 with 819,200 tokens: 6.31 GiB of activations."""
    long, longer = (
        served(
            model, "0.26.0", "B200", 8, max_model_len=length, tensor_parallel_size=8, max_num_batched_tokens=2048
        ).quantities["activation_peak"]
        for length in (600_000, 800_000)
    )
    assert longer.expected - long.expected == pytest.approx(200_000 * bytes_of_a_token, rel=0.01)


def test_whole_steps_that_are_captured_have_room_for_an_indexers_scores_of_the_whole_context() -> None:
    """GLM-5.2 on four GB200, steps of 512 tokens: 4.13 GiB of graphs with contexts of 819,200."""
    short, long = (
        served("nvidia/GLM-5.2-NVFP4", "0.26.0", "B200", 8, max_model_len=length, tensor_parallel_size=8).quantities
        for length in (200_000, 800_000)
    )
    more = long["cuda_graph"].expected - short["cuda_graph"].expected
    assert more == pytest.approx(600_000 * 512 * 4, rel=0.01)
