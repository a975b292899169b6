"""The table of accelerators: complete, sane, with sources; memory and context rules follow their data."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import linear_regression, median

import pytest

import vramwise.hardware as hardware
from vramwise.hardware import Gpu, context_bytes, find_gpu, gpus
from vramwise.hardware.memory import nominal_total
from vramwise.units import GIB, MIB

TABLES = Path(hardware.__file__).parent
ALL = gpus()


def rows(name: str) -> list[dict[str, str]]:
    with open(TABLES / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def constant(name: str) -> tuple[float, float, float]:
    row = next(row for row in rows("calibration") if row["name"] == name)
    return float(row["low"]), float(row["expected"]), float(row["high"])


def test_at_least_120_accelerators_with_unique_ids_in_order() -> None:
    ids = [gpu.id for gpu in ALL]
    assert len(ids) >= 120
    assert ids == sorted(set(ids))


def test_every_row_has_a_source_and_a_confidence() -> None:
    assert all(gpu.source and gpu.confidence in {"high", "medium", "low"} for gpu in ALL)
    assert all(gpu.memory_source for gpu in ALL if gpu.memory_reported_bytes)


@pytest.mark.parametrize("gpu", ALL, ids=lambda gpu: gpu.id)
def test_figures_are_within_reason(gpu: Gpu) -> None:
    assert gpu.bandwidth_gb_s is None or 30 <= gpu.bandwidth_gb_s <= 10_000
    assert all(0.5 <= rate <= 20_000 for _, rate in gpu.tflops)
    if gpu.memory_reported_bytes and gpu.memory_nominal_gb:
        assert 0.93 < gpu.memory_reported_bytes / (gpu.memory_nominal_gb * GIB) <= 1.0
    if gpu.usable and gpu.memory_nominal_gb:
        assert gpu.usable.low <= gpu.usable.expected <= gpu.usable.high
        least = 0.5 if gpu.unified_memory else 0.85
        assert least <= gpu.usable.expected * gpu.devices / (gpu.memory_nominal_gb * GIB) <= 1.0
        assert gpu.usable.source
        assert gpu.usable.rule


@pytest.mark.parametrize(
    ("gpu_id", "dtype", "rate"),
    [
        ("rtx-4090", "fp16", 165.2),
        ("a100-sxm-80gb", "bf16", 312),
        ("h100-sxm-80gb", "bf16", 989.4),
        ("h100-pcie-80gb", "bf16", 756),
        ("t4", "fp16", 65),
        ("v100-sxm2-32gb", "fp16", 125),
    ],
)
def test_golden_dense_rates(gpu_id: str, dtype: str, rate: float) -> None:
    assert find_gpu(gpu_id).gpu.dense_tflops(dtype) == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize(
    ("gpu_id", "mib"),
    [("h100-sxm-80gb", 81559), ("a100-sxm-80gb", 81920), ("t4", 15360), ("l4", 23034), ("rtx-4090", 24564)],
)
def test_golden_driver_totals(gpu_id: str, mib: int) -> None:
    assert find_gpu(gpu_id).gpu.memory_reported_bytes == mib * MIB


# What PyTorch and vLLM print for these cards.
@pytest.mark.parametrize(
    ("gpu_id", "low", "high"),
    [
        ("h100-sxm-80gb", 79.1, 79.3),
        ("a100-sxm-40gb", 39.3, 39.6),
        ("a100-sxm-80gb", 79.1, 79.4),
        ("a10g-24gb", 22.06, 22.3),
        ("t4", 14.56, 14.74),
        ("l40s", 44.3, 44.55),
        ("rtx-3090", 23.5, 23.7),
        ("v100-sxm2-32gb", 31.7, 31.8),
    ],
)
def test_usable_totals_are_those_that_engines_print(gpu_id: str, low: float, high: float) -> None:
    usable = find_gpu(gpu_id).gpu.usable_bytes
    assert usable is not None
    assert low <= round(usable / GIB, 2) <= high


@pytest.mark.parametrize(
    ("name", "nominal", "least", "most"),
    [
        ("m3-max-64gb", 64, 48.0, 51.9),  # Metal prints 55662.79 MB on newer macOS, three quarters on older
        ("m4 16gb", 16, 10.6, 11.9),
        ("apple-m1", 8, 5.3, 6.3),
        ("gb10", 128, 117.0, 121.0),  # torch: 130596048896 bytes, of which the system holds some
        ("jetson-agx-orin-64gb", 64, 57.0, 61.0),
        ("strix halo 128gb", 128, 64.0, 96.0),
    ],
)
def test_of_shared_memory_a_process_may_take_a_part(name: str, nominal: float, least: float, most: float) -> None:
    gpu = find_gpu(name).gpu
    assert gpu.memory_nominal_gb == nominal
    assert gpu.usable is not None
    assert least * GIB <= gpu.usable.expected <= most * GIB
    assert gpu.usable.low <= gpu.usable.expected <= gpu.usable.high < nominal * GIB
    assert gpu.memory_note is not None
    assert "--gpu-total-bytes" in gpu.memory_note


def test_every_printed_share_lies_in_the_interval_of_its_size() -> None:
    for row in rows("shared_memory"):
        size = int(row["total_bytes"])
        assert row["source"]
        for gpu in (gpu for gpu in ALL if row["vendor"] == "Apple" == gpu.vendor):
            if int(row["nominal_gb"]) in gpu.memory_options_gb:
                usable = find_gpu(f"{gpu.id}-{row['nominal_gb']}gb").gpu.usable
                assert usable is not None
                assert usable.low <= size <= usable.high


def test_devices_without_cuda_have_no_cuda_context() -> None:
    for name in ("m3-max", "tpu-v5e", "aws-trainium2", "gaudi-3", "ascend-910b"):
        assert context_bytes(find_gpu(name).gpu).high == 0
    assert context_bytes(find_gpu("mi300x").gpu).expected > 0


def test_reserve_constants_are_the_fit_of_the_observed_totals() -> None:
    cards = {row["id"]: row for row in rows("gpus")}
    pairs = [
        (float(cards[row["gpu"]]["memory_total_mib"]) / 1024, float(row["total_gib"]))
        for row in rows("torch_totals")
        if cards[row["gpu"]]["memory_total_mib"] and not cards[row["gpu"]]["older_driver"]
    ]
    reported = [pair[0] for pair in pairs]
    reserve = [total - seen for total, seen in pairs]
    share, fixed = linear_regression(reported, reserve)
    residuals = [lost - fixed - share * total for lost, total in zip(reserve, reported, strict=True)]
    assert constant("torch_reserve_share")[1] == pytest.approx(share, abs=5e-6)
    low, expected, high = constant("torch_reserve_fixed")
    assert expected == pytest.approx(fixed, abs=5e-4)
    assert (low, high) == pytest.approx((fixed + min(residuals), fixed + max(residuals)), abs=5e-4)


def test_reported_share_is_the_median_of_the_table() -> None:
    shares = [
        float(row["memory_total_mib"]) / 1024 / float(row["memory_nominal_gb"])
        for row in rows("gpus")
        if row["memory_total_mib"] and row["vendor"] == "NVIDIA" and not row["older_driver"]
    ]
    golden = (min(shares), median(shares), max(shares))
    assert constant("nvidia_reported_share") == pytest.approx(golden, abs=5e-5)


def test_context_constants_follow_the_measurements() -> None:
    sm_count = {row["id"]: float(row["sm_count"] or 0) for row in rows("gpus")}
    by_loading: dict[str, list[float]] = {}
    lazy_by_card: dict[str, list[float]] = {}
    for row in rows("context"):
        per_sm = float(row["mib"]) / sm_count[row["gpu"]]
        by_loading.setdefault(row["loading"], []).append(per_sm)
        if row["loading"] == "lazy":
            lazy_by_card.setdefault(row["gpu"], []).append(per_sm)
    usual = median(median(card) for card in lazy_by_card.values())
    golden = (min(by_loading["context"]), usual, max(by_loading["lazy"]))
    assert constant("context_per_sm_lazy") == pytest.approx(golden, abs=0.01)
    eager = sorted(by_loading["eager"])
    assert constant("context_per_sm_eager") == pytest.approx((eager[0], median(eager), eager[2]), abs=0.06)


def test_context_of_other_cards_is_the_median_of_the_measurements() -> None:
    mib = {
        loading: [float(row["mib"]) for row in rows("context") if row["loading"] == loading]
        for loading in ("context", "lazy")
    }
    by_card = {
        row["gpu"]: [float(one["mib"]) for one in rows("context") if one["gpu"] == row["gpu"]]
        for row in rows("context")
        if row["loading"] == "lazy"
    }
    golden = (min(mib["context"]), median(median(card) for card in by_card.values()), max(mib["lazy"]))
    assert constant("context_unknown") == pytest.approx(golden, abs=0.6)


@pytest.mark.parametrize(("gpu_id", "mib"), [("l4", 226), ("h100-sxm-80gb", 625)])
def test_context_of_measured_cards(gpu_id: str, mib: int) -> None:
    context = context_bytes(find_gpu(gpu_id).gpu)
    assert context.expected == mib * MIB
    assert context.low <= context.expected <= context.high


def test_context_of_the_article_needs_eager_loading() -> None:
    v100 = find_gpu("v100-sxm2-16gb").gpu
    assert context_bytes(v100, lazy_loading=False).expected == 1343 * MIB
    assert context_bytes(v100).expected < 500 * MIB


def test_context_of_an_unknown_card_has_a_wide_interval() -> None:
    context = context_bytes(None)
    assert context.high > 5 * context.low


@pytest.mark.parametrize(
    ("gpu_id", "bf16", "fp8", "flash"),
    [
        ("v100-sxm2-32gb", False, False, False),
        ("t4", False, False, False),
        ("a100-sxm-80gb", True, False, True),
        ("rtx-4090", True, True, True),
        ("h100-sxm-80gb", True, True, True),
        ("mi300x", True, True, True),
        ("apple-m1", None, None, None),
    ],
)
def test_support(gpu_id: str, bf16: bool | None, fp8: bool | None, flash: bool | None) -> None:
    gpu = find_gpu(gpu_id).gpu
    assert (gpu.supports("bf16"), gpu.supports("fp8_gemm"), gpu.supports("flash_attention_2")) == (
        bf16,
        fp8,
        flash,
    )


def test_every_nvidia_and_amd_card_has_a_support_row() -> None:
    for gpu in ALL:
        if gpu.vendor in {"NVIDIA", "AMD"}:
            assert gpu.support.bf16 != "unknown", gpu.id


def test_query_filters_by_every_word() -> None:
    assert [gpu.id for gpu in gpus("a100 80gb")] == ["a100-pcie-80gb", "a100-sxm-80gb"]
    assert all(gpu.vendor == "AMD" for gpu in gpus("amd"))
    assert gpus("no such card") == []


def test_a_driver_reports_a_little_less_than_is_sold() -> None:
    assert nominal_total("AMD", 24, shared=False) == 24 * GIB
    assert nominal_total("NVIDIA", 128, shared=True) == 128 * GIB
    assert 0.95 * 24 * GIB < nominal_total("NVIDIA", 24, shared=False) < 24 * GIB
