"""A tensor without data: shape, strides, dtype, storage, requires_grad; and how views change them."""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache
from typing import Literal

from vramwise.models.autograd.primitives import Primitive, primitive
from vramwise.models.autograd.size import Dim, probe, product
from vramwise.records import record

StorageKind = Literal["activation", "parameter", "weight_copy", "buffer", "registered", "input"]
"""`registered`: a buffer that its block declares (`blocks.Buffer`), which is counted beside the weights."""

ITEM_BYTES = {
    "fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2, "int64": 8, "uint64": 8, "int32": 4, "int16": 2,
    "uint8": 1, "int8": 1, "bool": 1, "fp8": 1, "complex64": 8,
}  # fmt: skip
FLOATING = frozenset({"fp64", "fp32", "bf16", "fp16", "complex64"})


class Storage:
    """The bytes behind one or more tensors; compared by identity, as autograd's saved storages are."""

    __slots__ = ("kind", "module", "nbytes", "op")

    def __init__(self, nbytes: Dim, kind: StorageKind, op: str, module: str) -> None:
        self.nbytes = nbytes
        self.kind: StorageKind = kind
        self.op = op
        self.module = module

    def __repr__(self) -> str:
        return f"Storage({self.nbytes} bytes, {self.kind}, {self.op} in {self.module or 'model'})"


@record(eq=False)
class Tensor:
    """What shape inference knows of a torch tensor."""

    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    dtype: str
    storage: Storage
    requires_grad: bool = False
    is_parameter: bool = False

    @property
    def numel(self) -> Dim:
        return numel_of(self.shape)

    @property
    def nbytes(self) -> Dim:
        return self.numel * ITEM_BYTES[self.dtype]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_floating(self) -> bool:
        return self.dtype in FLOATING

    def is_contiguous(self) -> bool:
        if 0 in self.shape:  # nothing to lie apart: torch takes a view of no values as it is
            return True
        expected: Dim = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size == 1:
                continue
            if probe(stride) != probe(expected):
                return False
            expected = expected * size
        return True

    def is_dense(self) -> bool:
        """Non-overlapping and dense: some order of the dimensions makes it contiguous."""
        expected: Dim = 1
        dims = sorted(
            ((stride, size) for stride, size in zip(self.strides, self.shape, strict=True) if size != 1),
            key=lambda pair: probe(pair[0]),
        )
        for stride, size in dims:
            if probe(stride) != probe(expected):
                return False
            expected = expected * size
        return True


@record(frozen=False)
class Node:
    """One primitive operation: what it read, made, and keeps for backward.

    `in_norm`: whether it is part of a norm. `backward_workspace_bytes`: what backward takes beside what it makes, None
    for as much as forward does; `backward_pieces`: the blocks that this is made of, one where empty.
    `saves_parameters`: whether it keeps weights too, which `saved` leaves out. `primitive`: what is known of every
    operation of that name. Raises `UndescribedOperationError` where nothing is.
    """

    op: str
    module: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    saved: tuple[tuple[Storage, str], ...] = ()
    flops: Dim = 0
    backward_flops: Dim = 0
    workspace_bytes: Dim = 0
    in_norm: bool = False
    backward_workspace_bytes: Dim | None = None
    backward_pieces: tuple[Dim, ...] = ()
    saves_parameters: bool = False
    primitive: Primitive = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.primitive = primitive(self.op)


@lru_cache(maxsize=4096)
def numel_of(shape: tuple[Dim, ...]) -> Dim:
    """Elements of a tensor of this shape."""
    return product(shape)


@lru_cache(maxsize=4096)
def contiguous_strides(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Row-major strides, in elements."""
    strides: list[Dim] = []
    step: Dim = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def channels_last_strides(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Strides of four dimensions of which the second is the fastest."""
    _, channels, height, width = shape
    return height * width * channels, 1, width * channels, channels


def is_channels_last(tensor: Tensor) -> bool:
    """Whether four dimensions lie in that order (c10 `is_channels_last_strides_2d`, which decides doubtful cases)."""
    if tensor.ndim != 4 or tensor.strides[1] == 0:
        return False
    least = 0
    for d in (1, 3, 2, 0):
        stride = probe(tensor.strides[d])
        if stride < least or (d == 0 and least == probe(tensor.strides[1])):
            return False
        least = stride * probe(tensor.shape[d])
    return True


def pointwise_strides(shape: tuple[Dim, ...], operands: tuple[Tensor, ...]) -> tuple[Dim, ...]:
    """Strides of a pointwise result: the operands' order of dimensions, packed densely.

    Follows ATen's `TensorIteratorBase::reorder_dimensions` (torch 2.13): the first operand whose two strides
    differ and are not broadcast decides which dimension is the faster one.
    """
    broadcast = [_broadcast_strides(operand, shape) for operand in operands]
    order = list(range(len(shape) - 1, -1, -1))
    for i in range(1, len(order)):
        upper = i
        for lower in range(i - 1, -1, -1):
            decision = _slower(order[lower], order[upper], shape, broadcast)
            if decision > 0:
                order[lower], order[upper] = order[upper], order[lower]
                upper = lower
            elif decision < 0:
                break
    strides: list[Dim] = [0] * len(shape)
    step: Dim = 1
    for dim in order:
        strides[dim] = step
        step = step * shape[dim]
    return tuple(strides)


def _broadcast_strides(tensor: Tensor, shape: tuple[Dim, ...]) -> list[int]:
    missing = len(shape) - tensor.ndim
    own = [
        0 if size == 1 and shape[missing + i] != 1 else probe(stride)
        for i, (size, stride) in enumerate(zip(tensor.shape, tensor.strides, strict=True))
    ]
    return [0] * missing + own


def _slower(a: int, b: int, shape: tuple[Dim, ...], operands: list[list[int]]) -> int:
    for strides in operands:
        if strides[a] == 0 or strides[b] == 0:
            continue
        if strides[a] != strides[b]:
            return -1 if strides[a] < strides[b] else 1
        if probe(shape[a]) > probe(shape[b]):
            return 1
    return 0


def view_strides(tensor: Tensor, shape: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    """Strides of `tensor` seen in another shape, or None where that needs a copy (c10 `computeStride`)."""
    old_shape, old_strides = tensor.shape, tensor.strides
    if not old_shape or 0 in old_shape:
        return contiguous_strides(shape)
    new_strides: list[Dim] = [0] * len(shape)
    view_d = len(shape) - 1
    chunk_stride: Dim = old_strides[-1]
    tensor_numel: Dim = 1
    view_numel: Dim = 1
    for d in range(len(old_shape) - 1, -1, -1):
        tensor_numel = tensor_numel * old_shape[d]
        ends_chunk = d == 0 or (
            old_shape[d - 1] != 1 and probe(old_strides[d - 1]) != probe(tensor_numel * chunk_stride)
        )
        if ends_chunk:
            while view_d >= 0 and (probe(view_numel) < probe(tensor_numel) or shape[view_d] == 1):
                new_strides[view_d] = view_numel * chunk_stride
                view_numel = view_numel * shape[view_d]
                view_d -= 1
            if probe(view_numel) != probe(tensor_numel):
                return None
            if d > 0:
                chunk_stride = old_strides[d - 1]
                tensor_numel = 1
                view_numel = 1
    return None if view_d != -1 else tuple(new_strides)
