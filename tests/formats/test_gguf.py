"""GGUF block sizes, against the package that llama.cpp publishes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise.errors import UnknownNameError, UsageError
from vramwise.formats import GGUF_TYPES, gguf_type


def test_block_sizes_are_those_of_the_gguf_package() -> None:
    constants = pytest.importorskip("gguf.constants")
    theirs = {kind.name: size for kind, size in constants.GGML_QUANT_SIZES.items()}
    assert {row.name: (row.block_size, row.block_bytes) for row in GGUF_TYPES} == theirs


@pytest.mark.parametrize(
    ("name", "bits"), [("Q4_0", 4.5), ("Q8_0", 8.5), ("Q6_K", 6.5625), ("IQ4_XS", 4.25), ("MXFP4", 4.25)]
)
def test_bits_per_weight(name: str, bits: float) -> None:
    assert gguf_type(name).bits_per_weight == bits


def test_letter_case_and_dashes_do_not_count() -> None:
    assert gguf_type("iq4-xs") is gguf_type("IQ4_XS")


def test_bytes_of_a_tensor() -> None:
    assert gguf_type("Q4_K").bytes_for((4096, 4096)) == 4096 * 4096 // 256 * 144
    assert gguf_type("F32").bytes_for((4096,)) == 4 * 4096


def test_columns_that_do_not_divide_are_refused() -> None:
    with pytest.raises(UsageError, match="blocks of 256 weights, 100 columns"):
        gguf_type("Q4_K").bytes_for((256, 100))


def test_a_file_type_is_not_a_tensor_type() -> None:
    with pytest.raises(UnknownNameError, match="Q4_K"):
        gguf_type("Q4_K_M")


@given(st.sampled_from(GGUF_TYPES), st.integers(1, 200), st.integers(1, 50))
def test_bytes_grow_with_rows_and_blocks(row: object, rows: int, blocks: int) -> None:
    kind = row
    assert isinstance(kind, type(GGUF_TYPES[0]))
    assert kind.bytes_for((rows, blocks * kind.block_size)) == rows * blocks * kind.block_bytes
