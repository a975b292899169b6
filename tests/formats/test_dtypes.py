"""Bytes a value, against torch where torch has the dtype."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise.errors import UnknownNameError
from vramwise.formats import DTYPES, dtype


@pytest.mark.parametrize(
    ("name", "bits"),
    [("fp64", 64), ("fp32", 32), ("fp16", 16), ("bf16", 16), ("int8", 8), ("int4", 4), ("nf4", 4)],
)
def test_stored_bits(name: str, bits: int) -> None:
    assert dtype(name).bits == bits
    assert dtype(name).bytes_per_value == bits / 8


@pytest.mark.parametrize(
    ("precision", "golden"), [("fp32", 4), ("fp16", 2), ("bf16", 2), ("int8", 1), ("int4", 0.5), ("fp8", 1)]
)
def test_bytes_per_precision_of_the_articles(precision: str, golden: float) -> None:
    assert dtype(precision).bytes_per_value == golden


def test_tf32_uses_19_bits_and_stores_32() -> None:
    assert (dtype("tf32").used_bits, dtype("tf32").bits) == (19, 32)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("bfloat16", "bf16"),
        ("torch.bfloat16", "bf16"),
        ("float16", "fp16"),
        ("half", "fp16"),
        ("float32", "fp32"),
        ("FP8", "fp8_e4m3"),
        ("fp8-e5m2", "fp8_e5m2"),
        ("torch.float8_e4m3fn", "fp8_e4m3"),
        (" BF16 ", "bf16"),
    ],
)
def test_aliases(alias: str, name: str) -> None:
    assert dtype(alias).name == name


def test_every_spelling_is_unique() -> None:
    spellings = [spelling for row in DTYPES for spelling in (row.name, *row.aliases)]
    assert len(spellings) == len(set(spellings))


def test_sign_exponent_and_mantissa_add_up_for_floats() -> None:
    for row in DTYPES:
        if row.kind == "float":
            assert 1 + row.exponent_bits + row.mantissa_bits == row.used_bits, row.name


def test_every_row_has_a_source() -> None:
    assert all(row.source for row in DTYPES)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "name",
    ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32", "int8", "bool"],
)
def test_sizes_are_those_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    assert dtype(name).bytes_for(1) == getattr(torch, name).itemsize


@given(st.integers(0, 10**12))
def test_four_bit_values_are_packed_and_rounded_up(numel: int) -> None:
    assert dtype("int4").bytes_for(numel) == (numel + 1) // 2


@given(st.text(max_size=40))
def test_any_text_is_a_dtype_or_a_clear_error(name: str) -> None:
    try:
        found = dtype(name)
    except UnknownNameError as error:
        message = str(error)
    else:
        message = found.name
        assert found in DTYPES
    assert "\n" not in message


def test_an_unknown_dtype_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="bfloat16"):
        dtype("bfloat15")
