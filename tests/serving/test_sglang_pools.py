"""What a token takes in SGLang's pools: sparse latent rows, layers that share keys, stages of a pipeline."""

from __future__ import annotations

import pytest

from vramwise.errors import ScenarioError
from vramwise.estimation import estimate
from vramwise.result import Quantity

SPARSE, GLM = "deepseek-ai/DeepSeek-V3.2-Exp", "zai-org/GLM-5-FP8"


def pool(model: str, gpu: str, gpus: int, version: str, **settings: object) -> dict[str, Quantity]:
    serve = {"engine": "sglang", "engine_version": version, **settings}
    scenario = {"model": model, "task": "serve", "gpu": gpu, "num_gpus": gpus, "serve": serve}
    return dict(estimate(scenario).quantities)


def token_bytes(model: str, gpu: str, gpus: int, version: str, **settings: object) -> float:
    numbers = pool(model, gpu, gpus, version, **settings)
    return numbers["kv_cache_bytes"].expected / numbers["kv_cache_tokens"].expected


def test_tokens_of_sparse_attention_are_counted_without_their_scales() -> None:
    """GLM-5 in fp8 on eight MI355X: 3,262,823 tokens of 78 · (656 + 132) bytes are printed, 186.77 GiB, of a room for
    78 · (576 + 132) each."""
    numbers = pool(GLM, "mi355x", 8, "0.5.8.post1", tensor_parallel_size=8, kv_cache_dtype="fp8_e4m3")
    assert numbers["kv_cache_tokens"].expected == pytest.approx(3_262_823, rel=0.03)
    assert numbers["kv_cache_bytes"].expected == pytest.approx(186.77 * 2**30, rel=0.03)


@pytest.mark.parametrize(
    ("model", "gpu", "version", "row"),
    [
        (SPARSE, "H200", "0.5.9", 576 * 2),
        (SPARSE, "H200", "0.5.17", 576 * 2),
        (SPARSE, "B200", "0.5.9", 656),
        (SPARSE, "B200", "0.5.10", 576),
        (SPARSE, "mi355x", "0.5.17", 576 * 2),
        (GLM, "RTX PRO 6000 Blackwell", "0.5.17", 656),
        (GLM, "RTX PRO 6000 Blackwell", "0.5.14", 576),
    ],
)
def test_rows_of_sparse_attention_by_card_and_version(model: str, gpu: str, version: str, row: int) -> None:
    layers, ranks = (61, 8) if model == SPARSE else (78, 16)
    assert token_bytes(model, gpu, ranks, version, tensor_parallel_size=ranks) == pytest.approx(
        layers * (row + 132), rel=1e-4
    )


def test_plain_rows_where_a_8_bit_cache_is_asked_for_on_amd() -> None:
    settings = {"tensor_parallel_size": 8, "kv_cache_dtype": "fp8_e4m3"}
    scaled, plain = (token_bytes(SPARSE, "mi355x", 8, version, **settings) for version in ("0.5.9", "0.5.10"))
    assert (scaled, plain) == (pytest.approx(61 * 788, rel=1e-4), pytest.approx(61 * 708, rel=1e-4))


def test_layers_that_share_keys_have_room_of_their_own() -> None:
    """Gemma 4 E4B: 79.94 GiB for 997,846 tokens in 7 full layers and 798,276 in 35 windowed ones are printed, though
    18 of the 42 layers take the keys of others."""
    printed = 79.94 * 2**30 / 997_846
    assert token_bytes("google/gemma-4-E4B-it", "GB10", 1, "0.5.19") == pytest.approx(printed, rel=1e-3)


def test_each_stage_of_minimax_m2_has_room_for_all_layers() -> None:
    settings = {"pipeline_parallel_size": 3, "kv_cache_dtype": "fp8_e4m3", "mem_fraction_static": 0.8}
    assert token_bytes("nvidia/MiniMax-M2.5-NVFP4", "GB10", 3, "0.5.9", **settings) == 62 * 2 * 8 * 128


def test_a_pool_of_less_than_a_page_is_refused() -> None:
    """Tokens are cut to whole pages, and SGLang 0.5.23 raises "Not enough memory" for a pool of none."""
    settings = {"engine": "sglang", "block_size": 64, "max_model_len": 512}
    scenario = {"model": "EleutherAI/pythia-410m-deduped", "task": "serve", "gpu": "rtx-4090"}
    with pytest.raises(ScenarioError, match=r"63 is less than a page of 64 tokens .* say 64 or more"):
        estimate({**scenario, "serve": {**settings, "max_total_tokens": 63}})
    starts = estimate({**scenario, "serve": {**settings, "max_total_tokens": 64}})
    assert starts.verdict is not None
    assert starts.verdict.fits
