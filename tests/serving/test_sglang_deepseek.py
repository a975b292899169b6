"""What SGLang holds of DeepSeek's models besides: V4's pools against a printed line, and copies of a shared expert."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.models import describe
from vramwise.result import Result
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.sglang.compressed import CompressedPools, compressed_pools
from vramwise.sources import resolve
from vramwise.units import GIB

FLASH = describe(resolve("deepseek-ai/DeepSeek-V4-Flash").config, "")
LIGHT, HEAVY, LAYERS = 21, 20, 43


def pools(version: tuple[int, ...], **settings: Any) -> CompressedPools:
    given = ServeSettings(engine="sglang", chunked_prefill_size=8192, **settings)
    found = compressed_pools(FLASH, given, version, (0, LAYERS), 256)
    assert found is not None
    return found


def serve(model: str, gpu: str = "h200", **settings: Any) -> Result:
    table = {"engine": "sglang", "tensor_parallel_size": 8, **settings}
    return estimate({"model": model, "task": "serve", "gpu": gpu, "num_gpus": 8, "serve": table})


@pytest.mark.parametrize("dtype", ["auto", "bf16", "fp8_e4m3"])
def test_a_token_takes_what_was_printed_whatever_dtype_is_asked_for(dtype: str) -> None:
    """A log of 2026-05-15: bytes_per_full_token=15955.85, of 44 entries of which the last is a predicting layer's."""
    assert pools((0, 5, 12), kv_cache_dtype=dtype).token_bytes == pytest.approx(15955.85, abs=0.005)


def test_a_pool_holds_the_tokens_that_were_printed() -> None:
    """available_bytes=45.78 GB, full_token=3080960; available_bytes=19.58 GB, full_token=1317632."""
    token = pools((0, 5, 12)).token_bytes
    for printed, tokens in ((45.78, 3080960), (19.58, 1317632)):
        assert printed * GIB / token == pytest.approx(tokens, rel=3e-4)


def test_the_predicting_layer_is_not_counted_from_0_5_13() -> None:
    assert pools((0, 5, 12)).token_bytes - pools((0, 5, 13)).token_bytes == pytest.approx(0.1 * 584)


def test_states_of_128_tokens_are_of_requests_from_0_5_15() -> None:
    before, after = pools((0, 5, 14)), pools((0, 5, 15))
    assert before.fixed is None
    assert after.fixed is not None
    assert before.token_bytes - after.token_bytes == pytest.approx(0.1 * 2 * 512 * 4 * HEAVY)
    assert after.fixed.bytes == (257 * 128 + 256) * 2 * 512 * 4 * HEAVY


def test_the_window_holds_what_requests_need_from_0_5_21_unless_a_share_is_asked_for() -> None:
    keys = LIGHT * (584 + 132) / 4 + HEAVY * 584 / 128
    capped, shared = pools((0, 5, 23)), pools((0, 5, 23), swa_full_tokens_ratio=0.1)
    assert capped.token_bytes == pytest.approx(keys)
    window = LAYERS * 584 + 8 / 256 * 4 * (512 + 128) * 4 * LIGHT
    assert shared.token_bytes == pytest.approx(keys + 0.1 * window)
    assert capped.fixed is not None
    assert shared.fixed is not None
    tokens = 256 * (128 + 128 + 512) + 2 * 8192 + 256 + 4 * 256 * (128 + 256)
    assert capped.fixed.bytes - shared.fixed.bytes == round(tokens * window)
    uncached = pools((0, 5, 23), enable_prefix_caching=False)
    assert uncached.fixed is not None
    assert capped.fixed.bytes - uncached.fixed.bytes == round(4 * 256 * 384 * window)


def test_pools_share_what_is_left() -> None:
    """What requests take does not come on top of the share, and is told apart from the tokens' pool."""
    asked = {"engine_version": "0.5.23", "mem_fraction_static": 0.8, "enforce_eager": True}
    few, many = (
        serve("deepseek-ai/DeepSeek-V4-Flash", max_num_seqs=requests, **asked).quantities for requests in (64, 256)
    )
    more = pools((0, 5, 23))
    assert more.fixed is not None
    assert few["kv_cache_bytes"].expected - many["kv_cache_bytes"].expected > 0.7 * more.fixed.bytes
    assert few["nvidia_smi"].expected == pytest.approx(many["nvidia_smi"].expected, rel=0.01)


def test_0_4_6_copies_the_shared_expert_to_every_rank() -> None:
    """ "Cloning 8 replicas of the shared expert into MoE": 58 layers; a rank holds 8 eighths instead of one."""
    whole = 58 * 3 * 7168 * 2048
    scales = 58 * 3 * 7168 * 2048 // (128 * 128) * 4
    held = {
        version: serve("deepseek-ai/DeepSeek-R1", "mi300x", engine_version=version).quantities["weights"].expected
        for version in ("0.4.5", "0.4.6", "0.4.7")
    }
    assert held["0.4.6"] - held["0.4.7"] == (whole + scales) * 7 / 8
    assert held["0.4.5"] == held["0.4.7"]


def weights(gpu: str, version: str, **settings: Any) -> float:
    found = serve("deepseek-ai/DeepSeek-R1", gpu, engine_version=version, **settings)
    return found.quantities["weights"].expected


def test_up_projections_of_latent_attention_are_there_twice() -> None:
    """A log of 0.4.6 on eight MI308X prints 81.66 GB; copies of fp8 by blocks are in 16 bits on CUDA from 0.4.7 on."""
    copies = 61 * 16 * (128 + 128) * 512
    assert weights("mi300x", "0.4.6") == pytest.approx(81.66 * GIB, abs=0.1 * GIB)
    assert weights("h200", "0.5.23") - weights("mi300x", "0.5.23") == copies
    assert weights("a100-sxm-80gb", "0.4.7") - weights("a100-sxm-80gb", "0.4.6") == copies
    found = serve("deepseek-ai/DeepSeek-R1", "h200", engine_version="0.5.23")
    node = found.phases[0].components.find("weights/latent projections")
    assert node is not None
    assert node.bytes == 2 * copies


def test_before_compute_capability_9_no_expert_is_copied() -> None:
    node = serve("deepseek-ai/DeepSeek-R1", "a100-sxm-80gb", engine_version="0.4.6").phases[0].components
    assert node.find("weights/copies of shared experts") is None


@pytest.mark.parametrize(
    ("gpu", "version", "kept"), [("h200", "0.5.14", True), ("h200", "0.5.17", False), ("b200", "0.5.14", False)]
)
def test_scales_stay_as_they_were_loaded_beside_marlins(gpu: str, version: str, kept: bool) -> None:
    """V4 Pro on eight H200 (SemiAnalysisAI/InferenceX issue 2128): mem usage=125.65 GB; 102.2 without them."""
    found = serve("deepseek-ai/DeepSeek-V4-Pro", gpu, engine_version=version, mem_fraction_static=0.95)
    scales = found.phases[0].components.find("weights/loaded scales")
    assert (scales is not None) == kept
    if scales is not None:
        assert scales.bytes == pytest.approx(61 * 384 * 3 * 7168 * 3072 / 8 / 32 * 4)
        assert found.quantities["weights"].expected / GIB == pytest.approx(125.65, rel=0.01)
