"""What vision towers take in vLLM's profile run: cut by tensor parallelism, with outputs that stay until its end."""

from __future__ import annotations

import re
from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.models import Model, describe
from vramwise.models.allocator import block_bytes
from vramwise.result import Result
from vramwise.serving.common.encoder import encoder_work
from vramwise.serving.common.forward.modules import block_live_set
from vramwise.sources import resolve
from vramwise.units import GIB


def model_of(name: str) -> Model:
    return describe(resolve(name).config, name)


def serve(name: str, ranks: int, **settings: Any) -> Result:
    table = {"engine": "vllm", "tensor_parallel_size": ranks, "max_model_len": 32768, **settings}
    return estimate({"model": name, "task": "serve", "gpu": "rtx-3090", "num_gpus": ranks, "serve": table})


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_holds_its_share_of_what_column_cut_layers_make(ranks: int) -> None:
    block = next(b for b in model_of("Qwen/Qwen3.5-27B").blocks if any(p.part == "vision" for p in b.parameters) and
                 any("linear_fc1" in p.name for p in b.parameters))  # fmt: skip
    # the MLP's moment: input, residual sum and norm whole, fc1's output and its activation cut
    assert block_live_set(block, ranks) == 3 * 1152 + 2 * 4304 // ranks


# start-up logs of vLLM 0.19.0 on four cards of 24 GB, eager: settings, GiB of KV cache printed
@pytest.mark.parametrize(
    ("settings", "printed"),
    [
        ({"gpu_memory_utilization": 0.9}, 7.00),
        ({"gpu_memory_utilization": 0.92}, 7.47),
        ({"gpu_memory_utilization": 0.92, "max_num_seqs": 1, "max_model_len": 50000}, 7.56),
    ],
)
def test_qwen35_on_four_ranks(settings: dict[str, Any], printed: float) -> None:
    result = serve("Qwen/Qwen3.5-27B", 4, engine_version="0.19.0", enforce_eager=True, **settings)
    assert result.quantities["kv_cache_bytes"].expected / GIB == pytest.approx(printed, rel=0.02)


def test_outputs_of_the_encoder_stay_while_the_sampler_runs() -> None:
    few, many = (serve("Qwen/Qwen3.5-27B", 4, engine_version="0.19.0", max_num_seqs=n) for n in (512, 1024))
    for result in (few, many):
        assert result.phases[1].components.find("profile run: sampler/encoder cache") is not None
    grown = many.quantities["activation_peak"].expected - few.quantities["activation_peak"].expected
    assert grown == _sampled(1024) - _sampled(512)
    kept = many.phases[1].components.find("profile run: sampler/encoder cache")
    assert kept is not None
    assert kept.bytes == 16384 * 5120 * 2


def _sampled(rows: int) -> int:
    """Logits in 16 bits, in fp32, probabilities and noise; sampled rows of hidden states and random ones."""
    logits = sum(block_bytes(rows * 248320 * size) for size in (2, 4, 4, 4))
    return logits + 2 * block_bytes(rows * 5120 * 2)


def test_the_largest_video_of_qwen3_vl_counts_153600_tokens() -> None:
    """0.11 and 0.12 print "a budget of 153600 tokens, and profiled with 1 video items"; 0.13 counts 12,288."""
    old = serve("Qwen/Qwen3-VL-30B-A3B-Instruct", 2, engine_version="0.12.0")
    kept = old.phases[1].components.find("profile run: sampler/encoder cache")
    assert kept is not None
    assert kept.bytes == 153600 * 4 * 2048 * 2
    new = serve("Qwen/Qwen3-VL-30B-A3B-Instruct", 2, engine_version="0.13.0")
    assert old.quantities["activation_peak"].expected - new.quantities["activation_peak"].expected > 1.9 * GIB
    still = serve("Qwen/Qwen3-VL-30B-A3B-Instruct", 2, engine_version="0.12.0", limit_mm_per_prompt={"video": 0})
    assert still.quantities["activation_peak"].expected == new.quantities["activation_peak"].expected


@pytest.mark.parametrize(
    ("model", "patches"),
    [
        ("nvidia/Gemma-4-26B-A4B-NVFP4", 2520),  # 280 tokens of 3 × 3 patches
        ("OpenGVLab/InternVL2-2B", 13 * 32**2),  # 12 tiles and a thumbnail of 448 × 448 pixels
        ("google/gemma-3-27b-it", 64**2),
        ("Qwen/Qwen2.5-VL-7B-Instruct", 65_536),
    ],
)
def test_the_largest_image_is_that_of_the_models_own_processor(model: str, patches: int) -> None:
    found = resolve(model)
    assert encoder_work(describe(found.config, found.id), 1, 2).patches == patches


# 0.8.1 and 0.23 print the encoder's budget for 128,000 tokens: 98304 and 114688, "profiled with 1 video items"
@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({"engine_version": "0.8.1"}, 98304),
        ({"engine_version": "0.23.0"}, 114688),
        ({"engine_version": "0.23.0", "max_model_len": 32768}, 32768),
        ({"engine_version": "0.23.0", "max_model_len": 8192}, 16384),
        ({"engine_version": "0.23.0", "limit_mm_per_prompt": {"video": 0}}, 16384),
        ({"engine_version": "0.8.1", "limit_mm_per_prompt": {"image": 0}}, 114688),
        ({"engine_version": "0.8.1", "use_v1": False}, 16384),
    ],
)
def test_the_largest_video_of_qwen25_vl_is_as_long_as_the_model(settings: dict[str, Any], tokens: int) -> None:
    table = {"engine": "vllm", **settings}
    result = estimate({"model": "Qwen/Qwen2.5-VL-7B-Instruct", "task": "serve", "gpu": "a100-80gb-sxm", "serve": table})
    patches = _patches_of_the_profile(result)
    assert patches is None or patches == 4 * tokens
    if tokens > 32768:
        assert patches is not None


def _patches_of_the_profile(result: Result) -> float | None:
    """None where another phase is the largest."""
    running = result.phases[1].components.find("profile run: encoder")
    return None if running is None else float(running.inputs["patches"])


def test_qwen25_vl_3b_has_128000_positions() -> None:
    """vLLM 0.7.4 prints 7.16 GiB of weights: its four rotary tables are 0.12 of them."""
    table = {"engine": "vllm", "engine_version": "0.7.4", "max_model_len": 32768}
    result = estimate({"model": "Qwen/Qwen2.5-VL-3B-Instruct", "task": "serve", "serve": table})
    assert result.quantities["weights"].expected / GIB == pytest.approx(7.16, abs=0.01)


def test_the_largest_video_alone_takes_more_than_a_small_share_of_a_card() -> None:
    """A start of vLLM 0.23.0 at 22 % of an A100 is refused with -14.28 GiB for the cache."""
    table = {"engine": "vllm", "engine_version": "0.23.0", "gpu_memory_utilization": 0.22}
    result = estimate({"model": "Qwen/Qwen2.5-VL-7B-Instruct", "task": "serve", "gpu": "a100-80gb-sxm", "serve": table})
    assert result.quantities["kv_cache_bytes"].expected == 0
    assert result.verdict is not None
    taken, share = re.findall(r"([\d.]+) GiB", result.verdict.reasons[0])[:2]
    assert float(share) - float(taken) == pytest.approx(-14.28, rel=0.15)


def test_gemma_4_without_images_still_sees_videos() -> None:
    """0.26.0 on a B300 with images and sound limited to 0: "58.99 GiB for weight, 3.9 GiB for peak activation"."""
    table = {"engine": "vllm", "engine_version": "0.26.0", "max_model_len": 16384}
    found, blind = (
        estimate({"model": "google/gemma-4-31B-it", "task": "serve", "gpu": "b300",
                  "serve": {**table, "limit_mm_per_prompt": limits}})
        for limits in ({"image": 0, "audio": 0}, {"image": 0, "video": 0, "audio": 0})
    )  # fmt: skip
    weights, activations = (found.quantities[name] for name in ("weights", "activation_peak"))
    assert weights.expected / GIB == pytest.approx(58.99, rel=0.01)
    assert activations.low <= 3.9 * GIB <= activations.high
    assert blind.quantities["weights"].expected < weights.expected - GIB


def test_pixtrals_images_are_masked_where_no_kernel_is_told_their_lengths() -> None:
    """vLLM 0.12.0 to 0.28.0 models/pixtral.py. A start of 0.21 on an L40S prints a budget of 8,192 tokens, two images,
    and 27.91 GiB of KV cache; without the mask it would be 30.2."""

    def start(version: str) -> Result:
        settings = {"engine": "vllm", "engine_version": version, "enforce_eager": True}
        table = {**settings, "max_model_len": 8192, "max_num_batched_tokens": 8192}
        model = "mistralai/Ministral-3-8B-Instruct-2512"
        return estimate({"model": model, "task": "serve", "gpu": "l40s", "serve": table})

    patches, width = 2 * 110**2, 1024
    masked = start("0.21.0")
    running = masked.phases[1].components.find("profile run: encoder")
    assert running is not None
    assert running.bytes == 2 * patches * (patches + patches + 8 + 7 * width)  # rows of a multiple of 16: one more copy
    assert masked.quantities["kv_cache_bytes"].expected == pytest.approx(27.91 * GIB, rel=0.03)
    assert start("0.28.0").phases[1].components.find("profile run: encoder") is not None
    for version in ("0.11.2", "0.29.0"):
        assert start(version).phases[1].components.find("profile run: encoder") is None


def test_a_patch_may_be_given_as_its_two_sides() -> None:
    """OpenGVLab/InternVL3-8B-hf: patch_size [14, 14], image_size [448, 448]."""
    served = serve("OpenGVLab/InternVL3_5-8B", 1)
    assert served.quantities["activation_peak"].expected > 0
