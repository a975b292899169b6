"""Views and copies: reshape, transpose, expand, slices, concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vramwise.errors import ViewError
from vramwise.models.autograd.recorder import Recorder, promote
from vramwise.models.autograd.size import Dim, exact_quotient, product
from vramwise.models.autograd.tensor import (
    Tensor,
    channels_last_strides,
    is_channels_last,
    pointwise_strides,
    view_strides,
)


class Layout(Recorder):
    """Operations that move elements or only look at them differently; none of them saves anything."""

    def _seen_as(self, x: Tensor, shape: tuple[Dim, ...], strides: tuple[Dim, ...], op: str) -> Tensor:
        out = Tensor(shape, strides, x.dtype, x.storage, x.requires_grad, x.is_parameter)
        self.record(op, [x], [out])
        return out

    def as_strided(self, x: Tensor, shape: tuple[Dim, ...], strides: tuple[Dim, ...]) -> Tensor:
        """The same storage with other sizes and strides, which the caller knows to be right."""
        return self._seen_as(x, shape, strides, "view")

    def view(self, x: Tensor, *shape: Dim) -> Tensor:
        """`x.view(shape)`; one size may be -1. Raises ViewError."""
        target = _filled(x, shape)
        strides = view_strides(x, target)
        if strides is None:
            raise ViewError(f"view of {x.shape} with strides {x.strides} as {target} needs a copy")
        return self._seen_as(x, target, strides, "view")

    def reshape(self, x: Tensor, *shape: Dim) -> Tensor:
        """`x.reshape(shape)`: a view where strides allow, else a contiguous copy."""
        target = _filled(x, shape)
        strides = view_strides(x, target)
        if strides is not None:
            return self._seen_as(x, target, strides, "view")
        return self.view(self.clone_contiguous(x), *target)

    def clone_contiguous(self, x: Tensor) -> Tensor:
        """A row-major copy."""
        out = self.new(x.shape, x.dtype, requires_grad=x.requires_grad, op="clone")
        self.record("clone", [x], [out])
        return out

    def contiguous(self, x: Tensor) -> Tensor:
        return x if x.is_contiguous() else self.clone_contiguous(x)

    def permute(self, x: Tensor, *order: int) -> Tensor:
        shape = tuple(x.shape[i] for i in order)
        return self._seen_as(x, shape, tuple(x.strides[i] for i in order), "permute")

    def transpose(self, x: Tensor, a: int, b: int) -> Tensor:
        order = list(range(x.ndim))
        order[a], order[b] = order[b], order[a]
        return self.permute(x, *order)

    def unsqueeze(self, x: Tensor, dim: int) -> Tensor:
        dim = dim if dim >= 0 else x.ndim + 1 + dim
        step: Dim = x.shape[dim] * x.strides[dim] if dim < x.ndim else 1
        shape = (*x.shape[:dim], 1, *x.shape[dim:])
        return self._seen_as(x, shape, (*x.strides[:dim], step, *x.strides[dim:]), "unsqueeze")

    def squeeze(self, x: Tensor, dim: int) -> Tensor:
        dim = dim if dim >= 0 else x.ndim + dim
        return self._seen_as(x, x.shape[:dim] + x.shape[dim + 1 :], x.strides[:dim] + x.strides[dim + 1 :], "squeeze")

    def expand(self, x: Tensor, *shape: Dim) -> Tensor:
        """`x.expand(shape)`: sizes of 1 grow with stride 0; the storage stays as small as it is."""
        missing = len(shape) - x.ndim
        old = (1,) * missing + x.shape
        strides = (0,) * missing + x.strides
        grown = tuple(
            stride if size == target or target == -1 else 0
            for size, stride, target in zip(old, strides, shape, strict=True)
        )
        target_shape = tuple(size if target == -1 else target for size, target in zip(old, shape, strict=True))
        return self._seen_as(x, target_shape, grown, "expand")

    def narrow(self, x: Tensor, dim: int, length: Dim, op: str = "slice") -> Tensor:
        """A slice along one dimension: the whole storage stays alive behind it."""
        dim = dim if dim >= 0 else x.ndim + dim
        shape = (*x.shape[:dim], length, *x.shape[dim + 1 :])
        return self._seen_as(x, shape, x.strides, op)

    def step(self, x: Tensor, dim: int, stride: int) -> Tensor:
        """`x[..., ::stride]` along one dimension."""
        dim = dim if dim >= 0 else x.ndim + dim
        shape = (*x.shape[:dim], x.shape[dim] // stride, *x.shape[dim + 1 :])
        strides = (*x.strides[:dim], x.strides[dim] * stride, *x.strides[dim + 1 :])
        return self._seen_as(x, shape, strides, "slice")

    def split(self, x: Tensor, lengths: Sequence[Dim], dim: int = -1) -> tuple[Tensor, ...]:
        """`x.split(lengths, dim)`: views of one storage."""
        return tuple(self.narrow(x, dim, length, "split") for length in lengths)

    def chunk(self, x: Tensor, pieces: int, dim: int = -1) -> tuple[Tensor, ...]:
        return self.split(x, [x.shape[dim] // pieces] * pieces, dim)

    def view_as_complex(self, x: Tensor) -> Tensor:
        """Pairs of fp32 on the last axis seen as complex numbers."""
        strides = tuple(exact_quotient(stride, 2) for stride in x.strides[:-1])
        out = Tensor(x.shape[:-1], strides, "complex64", x.storage, x.requires_grad)
        self.record("view_as_complex", [x], [out])
        return out

    def view_as_real(self, x: Tensor) -> Tensor:
        """Complex numbers seen as pairs of fp32."""
        out = Tensor((*x.shape, 2), (*(2 * stride for stride in x.strides), 1), "fp32", x.storage, x.requires_grad)
        self.record("view_as_real", [x], [out])
        return out

    def select(self, x: Tensor, dim: int) -> Tensor:
        """One index of a dimension, which disappears."""
        dim = dim if dim >= 0 else x.ndim + dim
        return self._seen_as(x, x.shape[:dim] + x.shape[dim + 1 :], x.strides[:dim] + x.strides[dim + 1 :], "select")

    def cat(self, tensors: Sequence[Tensor], dim: int = -1) -> Tensor:
        """Concatenation: a new storage; operands of different dtypes meet in the wider one."""
        first = tensors[0]
        dim = dim if dim >= 0 else first.ndim + dim
        length: Dim = 0
        for tensor in tensors:
            length = length + tensor.shape[dim]
        shape = (*first.shape[:dim], length, *first.shape[dim + 1 :])
        dtype = promote(*(tensor.dtype for tensor in tensors))
        grad = any(tensor.requires_grad for tensor in tensors)
        out = self.new(shape, dtype, requires_grad=grad, op="cat")
        self.record("cat", tensors, [out])
        return out

    def stack(self, tensors: Sequence[Tensor], dim: int = -1) -> Tensor:
        dim = dim if dim >= 0 else tensors[0].ndim + 1 + dim
        return self.cat([self.unsqueeze(tensor, dim) for tensor in tensors], dim)

    def pad(self, x: Tensor, dim: int, extra: Dim) -> Tensor:
        """Constant padding along one dimension; four dimensions keep an order in which the second is the fastest."""
        dim = dim if dim >= 0 else x.ndim + dim
        shape = (*x.shape[:dim], x.shape[dim] + extra, *x.shape[dim + 1 :])
        strides = channels_last_strides(shape) if is_channels_last(x) else None
        out = self.new(shape, x.dtype, requires_grad=x.requires_grad, strides=strides, op="constant_pad_nd")
        self.record("constant_pad_nd", [x], [out])
        return out

    def repeat_rows(self, x: Tensor, times: Dim) -> Tensor:
        """`x.repeat(times, 1, ...)`: a copy, also for once."""
        out = self.new((times * x.shape[0], *x.shape[1:]), x.dtype, requires_grad=x.requires_grad, op="repeat")
        self.record("repeat", [x], [out])
        return out

    def unleafed(self, x: Tensor) -> Tensor:
        """A view of a parameter, which autocast casts anew each time."""
        if not x.is_parameter:
            return x
        out = replace(x, is_parameter=False)
        self.record("view", [x], [out])
        return out

    def repeat_interleave_heads(self, x: Tensor, times: int) -> Tensor:
        """Key or value heads repeated for grouped queries: (b, kv, s, d) -> (b, kv·times, s, d), a copy."""
        if times == 1:
            return x
        b, heads, s, d = x.shape
        wide = self.expand(self.unsqueeze(x, 2), b, heads, times, s, d)
        return self.reshape(wide, b, heads * times, s, d)

    def like(self, x: Tensor, *, dtype: str | None = None, requires_grad: bool, op: str) -> Tensor:
        """An empty tensor of the same shape and order of dimensions, dense."""
        strides = x.strides if x.is_dense() else pointwise_strides(x.shape, (x,))
        return self.new(x.shape, dtype or x.dtype, requires_grad=requires_grad, strides=strides, op=op)


def _filled(x: Tensor, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    if -1 not in shape:
        return tuple(shape)
    left, known = list(x.shape), []
    for size in shape:
        if size in left:  # equal sizes cancel: sums of axes cannot be divided by
            left.remove(size)
        elif size != -1:
            known.append(size)
    missing = exact_quotient(product(left), product(known))
    return tuple(missing if size == -1 else size for size in shape)
