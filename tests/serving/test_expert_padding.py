"""Experts in MXFP4 that a kernel of vLLM pads, by card and version."""

from __future__ import annotations

import pytest

from vramwise.estimation import estimate
from vramwise.result import Node
from vramwise.units import GIB

LAYERS, MATRICES, SIZE = 36, 3 * 128, 2880


def padding(gpu: str, version: str) -> Node | None:
    serve = {"engine": "vllm", "engine_version": version, "max_model_len": 4096}
    result = estimate({"model": "openai/gpt-oss-120b", "task": "serve", "gpu": gpu, "serve": serve})
    return result.phases[0].components.find("weights/expert padding")


def both(inner: int, hidden: int) -> float:
    return LAYERS * MATRICES * (inner * hidden - SIZE * SIZE) * 4.25 / 8


@pytest.mark.parametrize(
    ("gpu", "version", "multiple"),
    [("mi325x", "0.11.0", 256), ("mi325x", "0.11.2", 128), ("mi300x", "0.18.1", 128), ("mi355x", "0.16.0", 256),
     ("mi300x", "0.20.0", 256)],
)  # fmt: skip
def test_amd_cards_pad_both_sizes(gpu: str, version: str, multiple: int) -> None:
    """vLLM's create_weights on ROCm: get_padding_alignment of 0.11.1 to 0.18.1, 256 before and after."""
    found = padding(gpu, version)
    size = -(-SIZE // multiple) * multiple
    assert found is not None
    assert found.bytes == found.high == pytest.approx(both(size, size), rel=1e-6)


def test_without_the_package_of_triton_hopper_has_marlin() -> None:
    """Marlin printed 65.9651 GiB for gpt-oss-120b on H100 (0.10.1), Triton 64.38 (0.11.0, with the package)."""
    old, first, shipped = padding("h100", "0.10.1"), padding("h100", "0.11.2"), padding("h100", "0.12.0")
    assert old is not None
    assert first is not None
    assert shipped is not None
    assert old.low == old.high == first.high == pytest.approx(both(2944, 3072), rel=1e-6)
    assert first.bytes == shipped.bytes == shipped.high
    assert (first.high - first.bytes) / GIB == pytest.approx(65.9651 - 64.38, abs=0.04)


def test_radeons_are_not_known_to_pad() -> None:
    assert padding("rx-7900-xtx", "0.11.2") is None
