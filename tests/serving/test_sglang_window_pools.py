"""What SGLang's pools hold where windowed layers have other heads than full ones."""

from __future__ import annotations

import pytest

from vramwise.estimation import estimate

MIMO = "XiaomiMiMo/MiMo-V2-Flash"


def full_tokens(model: str, version: str, gpus: int) -> float:
    settings = {
        "engine": "sglang", "engine_version": version, "tensor_parallel_size": gpus, "mem_fraction_static": 0.7,
        "block_size": 64,
    }  # fmt: skip
    scenario = {"model": model, "task": "serve", "gpu": "H200", "num_gpus": gpus, "serve": settings}
    return estimate(scenario).quantities["kv_cache_tokens"].expected


def test_mimos_windows_are_counted_twice_until_0_5_8() -> None:
    """Nine layers of 640 bytes a token on one of four ranks, 39 of 1,280, which hold 0.8 of the tokens: a printed start
    (sgl-project/sglang#18039) has 375,360 tokens."""
    held = 640 * 9 + 0.8 * 1280 * 39
    counted = (640 * 48 + 1280 * 39) * (9 + 0.8 * 39) / 48
    before, since = full_tokens(MIMO, "0.5.8.post1", 4), full_tokens(MIMO, "0.5.9", 4)
    assert before == pytest.approx(since * held / counted, rel=1e-3)
    assert before == pytest.approx(375_360, rel=0.03)


def test_windows_of_the_same_heads_are_counted_once_in_every_version() -> None:
    versions = ("0.5.8.post1", "0.5.9")
    before, since = (full_tokens("openai/gpt-oss-120b", version, 1) for version in versions)
    assert before == pytest.approx(since, rel=1e-3)


@pytest.mark.parametrize("engine", ["sglang", "vllm", "tgi"])
def test_a_drafter_alone_has_no_keys_of_its_own(engine: str) -> None:
    """Windowed layers of Gemma 4's assistants have no layer before them whose keys they could read."""
    question = {"model": "google/gemma-4-E2B-it-assistant", "task": "serve", "gpu": "l4", "serve": {"engine": engine}}
    assert any("it drafts for that one (speculative)" in note for note in estimate(question).notes)
