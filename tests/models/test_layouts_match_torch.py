"""Strides, views and copies follow torch's own rules on random layouts."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given
from hypothesis import strategies as st

from vramwise.models.autograd import Tape, Tensor
from vramwise.models.autograd.tensor import pointwise_strides, view_strides

shapes = st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4)


@st.composite
def permuted(draw: st.DrawFn, shape: list[int] | None = None) -> tuple[Any, Tensor]:
    """A real tensor in a random layout and the symbolic one that stands for it."""
    sizes = shape or draw(shapes)
    order = draw(st.permutations(range(len(sizes))))
    real = torch.zeros([sizes[i] for i in order]).permute([order.index(i) for i in range(len(sizes))])
    if draw(st.booleans()) and sizes[-1] > 1:
        real = real[..., : sizes[-1] // 2]
    return real, _symbolic(real)


def _symbolic(real: Any) -> Tensor:
    tape = Tape()
    base = tape.new(tuple(real.shape), "fp32")
    return Tensor(tuple(real.shape), tuple(real.stride()), "fp32", base.storage)


@given(permuted())
def test_contiguity(pair: tuple[Any, Tensor]) -> None:
    real, symbolic = pair
    assert symbolic.is_contiguous() == real.is_contiguous()


@given(permuted(), st.data())
def test_views_exist_where_torch_has_them(pair: tuple[Any, Tensor], data: st.DataObject) -> None:
    real, symbolic = pair
    target = data.draw(st.permutations(list(real.shape)).map(list))
    if len(target) > 1 and data.draw(st.booleans()):
        target = [target[0] * target[1], *target[2:]]
    if data.draw(st.booleans()):
        target = [1, *target]
    try:
        expected = real.view(target).stride()
    except RuntimeError:
        expected = None
    found = view_strides(symbolic, tuple(target))
    assert (found is None) == (expected is None)
    if found is not None:
        assert [s for s, n in zip(found, target, strict=True) if n != 1] == [
            s for s, n in zip(expected, target, strict=True) if n != 1
        ]


@st.composite
def two_operands(draw: st.DrawFn) -> tuple[Any, Any]:
    shape = draw(shapes)
    first, _ = draw(permuted(shape))
    broadcast = [1 if draw(st.booleans()) else size for size in first.shape]
    second, _ = draw(permuted(broadcast))
    return first, second.expand(broadcast) if list(second.shape) == broadcast else torch.zeros(broadcast)


@given(two_operands())
def test_pointwise_results_are_laid_out_as_torch_does(pair: tuple[Any, Any]) -> None:
    real = pair[0] + pair[1]
    found = pointwise_strides(tuple(real.shape), tuple(_symbolic(operand) for operand in pair))
    assert [s for s, n in zip(found, real.shape, strict=True) if n != 1] == [
        s for s, n in zip(real.stride(), real.shape, strict=True) if n != 1
    ]
