from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise.errors import UsageError
from vramwise.units import GB, GIB, KB, KIB, MIB, UNIT_BYTES, format_bytes, gb, gib, parse_bytes, round_up


def test_gb_is_decimal_and_gib_is_binary():
    assert (KB, GB, KIB, GIB) == (1000, 1_000_000_000, 1024, 1_073_741_824)


@pytest.mark.parametrize(
    ("n", "unit", "decimals", "text"),
    [
        (16060522496, "GiB", 2, "14.96 GiB"),
        (16060522496, "GB", 2, "16.06 GB"),
        (0, "GiB", 2, "0.00 GiB"),
        (-3 * GIB // 2, "GiB", 1, "-1.5 GiB"),
        (-1, "GiB", 2, "0.00 GiB"),
        (5 * MIB, "MiB", 0, "5 MiB"),
        (123, "B", 2, "123 B"),
        (1536, "auto", 2, "1.50 KiB"),
        (7, "auto", 2, "7 B"),
        (3 * GIB, "auto", 1, "3.0 GiB"),
        (2**60 + 1, "GiB", 3, "1,073,741,824.000 GiB"),
    ],
)
def test_format_bytes(n, unit, decimals, text):
    assert format_bytes(n, unit, decimals) == text


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("123", 123),
        (" 80GB ", 80 * GB),
        ("80 GiB", 80 * GIB),
        ("80gib", 80 * GIB),
        ("80 gb", 80 * GB),
        ("1.5 TiB", 1536 * GIB),
        ("14.99 GiB", round(Fraction(1499, 100) * 2**30)),
        ("512 KIB", 512 * KIB),
        ("7 bytes", 7),
        (".5 KiB", 512),
        ("1,024.5 GiB", round(Fraction(2049, 2) * GIB)),
    ],
)
def test_parse_bytes(text, n):
    assert parse_bytes(text) == n


def test_a_bare_letter_is_refused_with_both_spellings():
    with pytest.raises(UsageError, match=r'"80G" is ambiguous: write "80 GB" .* or "80 GiB"'):
        parse_bytes("80G")


@pytest.mark.parametrize("text", ["80Gb", "80Mb"])
def test_bits_are_refused(text):
    with pytest.raises(UsageError, match="is a number of bits"):
        parse_bytes(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GiB",
        "-1",
        "1e9",
        "nan",
        "1.2.3 GB",
        "1,5 GB",
        "10,24 GB",
        ",024 GB",
        "eighty GB",
        "²GB",
        "9" * 5000,
        "1 GiB extra",
    ],
)
def test_nonsense_is_refused_in_one_short_line(text):
    with pytest.raises(UsageError) as caught:
        parse_bytes(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_an_unknown_unit_is_refused_both_ways():
    with pytest.raises(UsageError, match='unknown unit "XB"'):
        parse_bytes("80 XB")
    with pytest.raises(UsageError, match='unknown unit "G"'):
        format_bytes(1, "G")


@given(st.integers(0, 2**63), st.sampled_from(sorted(UNIT_BYTES)), st.integers(0, 9))
def test_text_round_trips_within_half_of_its_last_digit(n, unit, decimals):
    again = parse_bytes(format_bytes(n, unit, decimals))
    half_digit = Fraction(UNIT_BYTES[unit], 2 * 10**decimals) if unit != "B" else Fraction(0)
    assert abs(again - n) <= half_digit + Fraction(1, 2) * (unit != "B")


@given(st.integers(0, 2**63), st.sampled_from(["KiB", "MiB", "GiB", "TiB"]))
def test_enough_decimals_round_trip_exactly(n, unit):
    assert parse_bytes(format_bytes(n, unit, 13)) == n


@given(st.integers(0, 2**53), st.integers(1, 2**30))
def test_round_up_is_the_least_multiple(n, multiple):
    rounded = round_up(n, multiple)
    assert rounded % multiple == 0
    assert n <= rounded < n + multiple


def test_floats_for_charts():
    assert gib(3 * GIB // 2) == 1.5
    assert gb(3 * GB) == 3.0
