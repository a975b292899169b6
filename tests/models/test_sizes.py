"""Sizes are polynomials: their algebra, and the same answer for whole numbers and NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise.models import describe
from vramwise.models.autograd import axis, evaluate, with_rounded_axes
from vramwise.models.autograd.size import (
    Dim,
    behind_chunks_of,
    chunks_of,
    exact_quotient,
    product,
    total,
    whole_chunks_of,
)  # fmt: skip
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward

BATCH, SEQUENCE = axis("batch"), axis("sequence")
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}

axes_values = st.fixed_dictionaries({"batch": st.integers(1, 50), "sequence": st.integers(1, 50)})


@st.composite
def sizes(draw: st.DrawFn) -> Dim:
    terms = draw(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 2), st.integers(0, 2)), max_size=4))
    return total(c * product([BATCH] * b) * product([SEQUENCE] * s) for c, b, s in terms)


@given(sizes(), sizes(), axes_values)
def test_algebra_is_that_of_the_values(a: Dim, b: Dim, at: dict[str, int]) -> None:
    x, y = evaluate(a, at), evaluate(b, at)
    assert evaluate(a + b, at) == x + y
    assert evaluate(a - b, at) == x - y
    assert evaluate(a * b, at) == x * y
    assert evaluate(exact_quotient(a * 6, 3), at) == 2 * x


@given(sizes(), sizes())
def test_equal_polynomials_are_equal_and_hash_alike(a: Dim, b: Dim) -> None:
    assert a + b == b + a
    assert hash(a + b) == hash(b + a)
    assert (a + b) - b == a


def test_what_does_not_divide_is_refused() -> None:
    for dim, divisor in ((BATCH * 3, 2), (BATCH, SEQUENCE), (5, BATCH), (BATCH + SEQUENCE, BATCH + SEQUENCE)):
        with pytest.raises(ArithmeticError):
            exact_quotient(dim, divisor)


@given(st.lists(st.tuples(st.integers(2, 9), st.integers(2, 300)), min_size=1, max_size=8))
def test_arrays_and_whole_numbers_give_the_same_bytes(points: list[tuple[int, int]]) -> None:
    model, execution = describe(LLAMA), Execution(param_dtype="fp32", attention="sdpa")
    forward = record_forward(model, execution, batch=2, sequence=2)
    batches, sequences = (np.array(column, dtype=np.int64) for column in zip(*points, strict=True))
    for dim in (forward.saved_bytes, forward.flops, forward.backward_flops):
        together = evaluate(dim, with_rounded_axes(batch=batches, sequence=sequences))
        one_by_one = [evaluate(dim, with_rounded_axes(batch=b, sequence=s)) for b, s in points]
        assert np.broadcast_to(together, len(points)).tolist() == one_by_one


@given(st.integers(2, 6), st.integers(2, 60))
def test_more_tokens_never_keep_less(batch: int, sequence: int) -> None:
    forward = record_forward(describe(LLAMA), Execution(), batch=batch, sequence=sequence)
    here, longer, wider = (
        evaluate(forward.saved_bytes, with_rounded_axes(batch=b, sequence=s))
        for b, s in ((batch, sequence), (batch, sequence + 1), (batch + 1, sequence))
    )
    assert here < longer
    assert here < wider


@given(st.integers(1, 200), st.integers(2, 64))
def test_chunks_of_an_axis_are_those_of_its_length(length: int, chunk: int) -> None:
    at = with_rounded_axes(sequence=length)
    for of, meant in (
        (chunks_of, -(-length // chunk)), (whole_chunks_of, length // chunk), (behind_chunks_of, length % chunk),
    ):  # fmt: skip
        assert evaluate(of(SEQUENCE, chunk), at) == meant
        assert of(length, chunk) == meant


@pytest.mark.parametrize("of", [chunks_of, whole_chunks_of, behind_chunks_of])
@pytest.mark.parametrize("dim", [2 * SEQUENCE, BATCH * SEQUENCE])
def test_only_an_axis_has_chunks(of: Callable[[Dim, int], Dim], dim: Dim) -> None:
    with pytest.raises(ArithmeticError, match="is not a single axis"):
        of(dim, 16)
