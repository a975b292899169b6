"""Rules of thumb with the numbers of the articles that use them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from vramwise.errors import UsageError
from vramwise.interop import simple_rules as rules
from vramwise.interop.simple_rules import MODEL_STATES, Shape
from vramwise.units import GB, GIB, KIB, MB, MIB, format_bytes

SEVEN_BILLION = 7 * GB


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("7e9", SEVEN_BILLION), ("7b", SEVEN_BILLION), ("7B", SEVEN_BILLION), ("7000000000", SEVEN_BILLION),
        ("6.7b", 6_700_000_000), ("350M", 350_000_000), ("1.3e+9", 1_300_000_000), ("7.000000001b", 7_000_000_001),
        ("llama-7b", None), ("7 b x", None), ("", None), ("-7b", None), ("b", None), ("1e999", None), ("nan", None),
    ],
)  # fmt: skip
def test_a_size_is_read_exactly(text, count):
    assert rules.parameter_count(text) == count


@pytest.mark.parametrize("text", ["0", "0.0001", "1e30", "999999999999999e99"])
def test_absurd_sizes_are_refused(text):
    with pytest.raises(UsageError, match="from 1 to 10"):
        rules.parameter_count(text)


@pytest.mark.parametrize(("bits", "bytes_each"), [(32, 4), (16, 2), (8, 1), (4, Fraction(1, 2))])
def test_s6_bytes_a_parameter(bits, bytes_each):
    assert rules.weight_bytes(SEVEN_BILLION, bits) == SEVEN_BILLION * bytes_each
    assert rules.weight_bytes(3, 4) == 2


def test_s7_parameters_in_binary_units():
    fp16, fp32 = rules.weight_bytes(SEVEN_BILLION, 16), rules.weight_bytes(SEVEN_BILLION, 32)
    assert (fp16 / KIB, fp16 / MIB) == (13671875.0, 13351.4404296875)
    assert (fp32 / KIB, fp32 / MIB) == (27343750.0, 26702.880859375)
    assert (format_bytes(fp16, decimals=4), format_bytes(fp32, decimals=4)) == ("13.0385 GiB", "26.0770 GiB")


@pytest.mark.parametrize(("size", "row"), [(7, (28, 14, 7, 3.5)), (13, (52, 26, 13, 6.5))])
def test_s8_the_quick_table(size, row):
    assert tuple(rules.weight_bytes(size * GB, bits) / GB for bits in (32, 16, 8, 4)) == row


def test_s4_s11_s21_training_states():
    assert [rules.training_states_bytes(SEVEN_BILLION, row) for row in MODEL_STATES] == [
        98 * GB, 112 * GB, 56 * GB, 28 * GB,
    ]  # fmt: skip
    assert int(rules.training_states_bytes(SEVEN_BILLION, MODEL_STATES[2]) / GIB) == 52
    assert rules.int8_training_bytes(6 * GB) == 25_300_000_000


def test_s5_activations():
    assert rules.activation_bytes(Shape(1, 8192, 4096, 32)) == 2_147_483_648


def test_s9_inference():
    total = rules.inference_bytes(SEVEN_BILLION, Shape(1, 8192, 4096, 32, Fraction(4)))
    assert format_bytes(total) == "26.33 GiB"


def test_s20_rules_of_thumb():
    assert rules.thumb_bytes(SEVEN_BILLION) == {
        "serve 2n": 14 * GB, "train 16n": 112 * GB, "to be safe 20n": 140 * GB,
    }  # fmt: skip


def test_s21_samples_on_a_card():
    each = rules.sample_bytes(4096, 11008, 2048, 32)
    assert format_bytes(each, "MB", 0) == "990 MB"
    assert rules.samples_that_fit(80 * GB, rules.int8_training_bytes(6 * GB), each) == 55
    assert rules.samples_that_fit(24 * GB, rules.int8_training_bytes(6 * GB), each) == 0


def test_s28_hyperparameters_alone():
    """The article adds figures that it cut to two decimals (3.14 MB); the exact sum is 0.1 MB more."""
    count = rules.transformer_parameters(layers=12, hidden=768, vocabulary=30522, positions=512)
    shape = Shape(1, 512, 768, 12, Fraction(4))
    layer, cache = rules.hidden_bytes(shape), rules.kv_cache_bytes(shape) // 12
    assert count == 108_768_768
    assert (format_bytes(4 * count, "MB"), format_bytes(layer, "MB")) == ("435.08 MB", "1.57 MB")
    cut = [size // (MB // 100) for size in (layer, cache)]
    assert cut == [157, 314]
    assert (43508 + 12 * sum(cut)) / 100 == 491.60
    assert format_bytes(4 * count + 12 * (layer + cache), "MB") == "491.70 MB"
    assert rules.activation_bytes(shape) == 12 * layer
