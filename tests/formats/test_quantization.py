"""Bytes of quantized linear weights: by hand, and against the real bitsandbytes where it is installed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise.errors import UnknownNameError, UsageError
from vramwise.formats.quantization import ALIASES, QUANTIZATIONS, QuantFormat, quantization

HAND_COUNTED = {
    "nf4": 4096 * 4096 // 2 + 4096 * 4096 // 64 * 4 + 64,
    "nf4-dq": 4096 * 4096 // 2 + 4096 * 64 + 4096 * 64 // 256 * 4 + 64 + 1024 + 4,
    "int8": 4096 * 4096 + 4096 * 4,
    "gptq": 4096 * 4096 // 2 + 32 * 4096 // 2 + 32 * 4096 * 2 + 4096 * 4,
    "gptq-int8": 4096 * 4096 + 32 * 4096 + 32 * 4096 * 2 + 4096 * 4,
    "gptq-marlin": 4096 * 4096 // 2 + 32 * 4096 * 2,
    "awq": 4096 * 4096 // 2 + 32 * 4096 // 2 + 32 * 4096 * 2,
    "w4a16": 4096 * 4096 // 2 + 32 * 4096 * 2 + 16,
    "w8a8": 4096 * 4096 + 4096 * 4,
    "fp8": 4096 * 4096 + 8,
    "fp8-dynamic": 4096 * 4096 + 4096 * 4,
    "mxfp4": 4096 * 4096 // 2 + 4096 * 128,
    "mxfp8": 4096 * 4096 + 4096 * 128,
    "nvfp4": 4096 * 4096 // 2 + 4096 * 256 + 8,
}


@pytest.mark.parametrize(("name", "golden"), HAND_COUNTED.items())
def test_bytes_of_a_square_weight(name: str, golden: int) -> None:
    assert quantization(name).bytes_for((4096, 4096)) == golden


def test_awq_costs_4_16_bits_at_group_128() -> None:
    assert quantization("awq").bits_per_weight() == pytest.approx(4 + (16 + 4) / 128)


def test_double_quantization_costs_0_5159_bytes() -> None:
    assert quantization("nf4-dq").bytes_for((14336, 4096)) / (14336 * 4096) == pytest.approx(0.5159, abs=5e-5)


def test_deepseek_v3_block_scales() -> None:
    rule = quantization("fp8", weight_block_size=(128, 128))
    assert rule.bytes_for((7168, 18432)) == 7168 * 18432 + 4 * 56 * 144
    assert rule.bytes_for((576, 7168)) == 576 * 7168 + 4 * 5 * 56  # 576 rows: the last block is cut


def test_a_stack_of_experts_is_so_many_weights() -> None:
    for rule in QUANTIZATIONS:
        if rule.name != "gguf":
            assert rule.bytes_for((32, 2880, 2880)) == 32 * rule.bytes_for((2880, 2880))


@pytest.mark.parametrize(("group_size", "groups"), [(32, 128), (64, 64), (-1, 1), (96, 43)])
def test_group_size_moves_scales_and_zeros(group_size: int, groups: int) -> None:
    stored = dict(quantization("gptq", group_size).tensors_for((4096, 4096)))
    assert stored["scales"] == groups * 4096 * 2
    assert stored["qzeros"] == groups * 4096 // 2


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_name_a_format(alias: str) -> None:
    assert quantization(alias).name == ALIASES[alias]


def test_embeddings_norms_and_the_head_stay_in_high_precision() -> None:
    for rule in QUANTIZATIONS:
        if rule.layout.startswith("mlx"):  # what has a width that groups divide, embeddings and routers too
            assert rule.quantizes("embedding", (128, 128), False)
            assert not rule.quantizes("embedding", (128, 136), False)
            assert not rule.quantizes("norm", (128,), False)
        elif rule.name != "gguf":
            for part in ("embedding", "norm", "head"):
                assert rule.stays_high_precision(part, (128, 128), True), (rule.name, part)


def test_bitsandbytes_leaves_fused_experts_alone_and_mxfp4_takes_only_experts() -> None:
    assert not quantization("nf4").quantizes("experts", (8, 128, 128), False)
    assert quantization("nf4").quantizes("experts", (128, 128), True)
    assert quantization("mxfp4").quantizes("experts", (8, 128, 128), False)
    assert not quantization("mxfp4").quantizes("attention", (128, 128), True)
    assert not quantization("nf4").quantizes("mixer", (128, 4), False)


@pytest.mark.parametrize("group_size", [0, -2])
def test_impossible_group_sizes_are_refused(group_size: int) -> None:
    with pytest.raises(UsageError, match="quantization_group_size"):
        quantization("gptq", group_size)


def test_gguf_needs_its_file_type() -> None:
    with pytest.raises(UsageError, match="gguf_quant"):
        quantization("gguf").bytes_for((128, 128))


def test_an_unknown_format_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="gptq-int4"):
        quantization("gptq-int5")


def test_only_matrices_are_replaced() -> None:
    with pytest.raises(UsageError, match="shape"):
        quantization("nf4").bytes_for((4096,))


def test_every_format_has_a_source_and_a_unique_name() -> None:
    assert all(rule.source for rule in QUANTIZATIONS)
    assert len({rule.name for rule in QUANTIZATIONS} | set(ALIASES)) == len(QUANTIZATIONS) + len(ALIASES)


@given(
    st.sampled_from([rule for rule in QUANTIZATIONS if rule.name != "gguf"]),
    st.integers(1, 3000),
    st.integers(1, 3000),
)
def test_never_smaller_than_its_bits(rule: QuantFormat, out: int, inner: int) -> None:
    assert rule.bytes_for((out, inner)) * 8 >= rule.bits * out * inner


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "double"), [("nf4", False), ("nf4-dq", True), ("fp4", False)])
@pytest.mark.parametrize("shape", [(256, 512), (100, 96), (4096, 320)])
def test_bytes_are_those_of_bitsandbytes(name: str, double: bool, shape: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("bitsandbytes.functional", reason="bitsandbytes is not installed")
    packed, state = functional.quantize_4bit(
        torch.randn(shape), compress_statistics=double, quant_type=name.removesuffix("-dq")
    )
    tensors = [packed, state.absmax, state.code]
    if double:
        tensors += [state.offset, state.state2.absmax, state.state2.code]
    assert quantization(name).bytes_for(shape) == sum(one.nelement() * one.element_size() for one in tensors)
