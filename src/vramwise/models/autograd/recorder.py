"""The tape itself: makes tensors, records nodes, keeps the set of saved storages, applies autocast.

Views and copies: reshape, transpose, expand, slices, concatenation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from vramwise.errors import UndescribedOperationError, ViewError
from vramwise.models.autograd.primitives import Device, primitive
from vramwise.models.autograd.size import Dim, exact_quotient, product
from vramwise.models.autograd.tensor import (
    ITEM_BYTES,
    Node,
    Storage,
    StorageKind,
    Tensor,
    channels_last_strides,
    contiguous_strides,
    is_channels_last,
    numel_of,
    pointwise_strides,
    view_strides,
)
from vramwise.records import replace


class Recorder:
    """Records primitive operations of one forward pass."""

    def __init__(self, *, device: Device = "cuda", autocast: str | None = None) -> None:
        self.device: Device = device
        self.autocast = autocast
        self.nodes: list[Node] = []
        self.saved: dict[Storage, str] = {}
        self.for_cache: list[Storage] = []
        self.named_by_modules: list[Tensor] = []
        self.module = ""
        self.in_norm = False
        self.grad_enabled = True
        # Axes whose lengths are multiples of 8, told only where a kernel takes a mask of such rows as it is.
        self.rows_of_eight: frozenset[str] = frozenset()
        self._weight_casts: dict[Storage, Tensor] = {}

    # -- making tensors ------------------------------------------------------------------------------------

    def new(
        self,
        shape: Sequence[Dim],
        dtype: str,
        *,
        requires_grad: bool = False,
        strides: tuple[Dim, ...] | None = None,
        kind: StorageKind = "activation",
        op: str = "",
    ) -> Tensor:
        """A tensor with a storage of its own."""
        shape = tuple(shape)
        storage = Storage(numel_of(shape) * ITEM_BYTES[dtype], kind, op, self.module)
        return Tensor(shape, strides or contiguous_strides(shape), dtype, storage, requires_grad and self.grad_enabled)

    def parameter(self, shape: Sequence[Dim], dtype: str, *, requires_grad: bool) -> Tensor:
        """A model's parameter: its storage is never counted among saved activations."""
        shape = tuple(shape)
        storage = Storage(numel_of(shape) * ITEM_BYTES[dtype], "parameter", "parameter", self.module)
        return Tensor(shape, contiguous_strides(shape), dtype, storage, requires_grad, is_parameter=True)

    # -- recording -----------------------------------------------------------------------------------------

    def record(
        self,
        op: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        saves: Sequence[tuple[Tensor, str]] = (),
        *,
        flops: Dim = 0,
        backward_flops: Dim = 0,
        workspace_bytes: Dim = 0,
        backward_workspace_bytes: Dim | None = None,
    ) -> None:
        """Record a node; what it saves joins the set of saved storages if a gradient flows through it.

        Workspaces are what the operation takes beside what it makes (`Node`).

        Raises `UndescribedOperationError` for an operation, or for something it saves, that its table does not have.
        """
        described = primitive(op).saves
        for _, role in saves:
            if role not in described:
                raise UndescribedOperationError(f"that the operation {op} keeps its {role} is not described")
        if not any(output.requires_grad for output in outputs):
            saves, backward_flops = (), 0
        kept = tuple((tensor.storage, role) for tensor, role in saves if tensor.storage.kind != "parameter")
        for storage, role in kept:
            self.saved.setdefault(storage, f"{op}.{role}")
        read, made = tuple(inputs), tuple(outputs)
        self.nodes.append(
            Node(
                op, self.module, read, made, kept, flops, backward_flops, in_norm=self.in_norm,
                workspace_bytes=workspace_bytes, backward_workspace_bytes=backward_workspace_bytes,
                saves_parameters=len(kept) < len(saves),
            )
        )  # fmt: skip

    @contextmanager
    def inside(self, module: str) -> Iterator[None]:
        """Names the module of the operations recorded within."""
        outer, self.module = self.module, module
        try:
            yield
        finally:
            self.module = outer

    # -- dtypes --------------------------------------------------------------------------------------------

    def to(self, x: Tensor, dtype: str) -> Tensor:
        """`x.to(dtype)`: the tensor itself when nothing changes, else a dense copy in the same layout."""
        if x.dtype == dtype:
            return x
        from vramwise.models.autograd.tensor import pointwise_strides

        strides = x.strides if x.is_dense() else pointwise_strides(x.shape, (x,))
        out = self.new(x.shape, dtype, requires_grad=x.requires_grad, strides=strides, op="_to_copy")
        self.record("_to_copy", [x], [out])
        return out

    def autocast_low(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Inputs of an operation that autocast runs in 16 bit; a trainable fp32 weight is cast once and kept."""
        if self.autocast is None:
            return tensors
        return tuple(self._cast_low(tensor) for tensor in tensors)

    def _cast_low(self, x: Tensor) -> Tensor:
        assert self.autocast is not None
        if not x.is_floating or x.dtype in (self.autocast, "fp64"):
            return x
        if not x.is_parameter:
            return self.to(x, self.autocast)
        cached = self._weight_casts.get(x.storage)
        if cached is not None:
            return cached
        out = self.new(
            x.shape, self.autocast, requires_grad=x.requires_grad, strides=x.strides, kind="weight_copy",
            op="_to_copy",
        )  # fmt: skip
        self.record("_to_copy", [x], [out])
        # at::autocast::cached_cast caches casts of fp32 leaves that require a gradient while gradients are on.
        if x.requires_grad and x.dtype == "fp32" and self.grad_enabled:
            self._weight_casts[x.storage] = out
        return out

    def keeps_cast(self, weight: Tensor) -> bool:
        """Whether backward already keeps autocast's copy of a weight."""
        cast = self._weight_casts.get(weight.storage)
        return cast is not None and cast.storage in self.saved

    def share_cast(self, done: Tensor, alike: Tensor) -> list[tuple[Storage, Storage]]:
        """The cast that a layer which was not recorded again makes of its own weight, as the one recorded did.

        Returns both storages, where a new one was made.
        """
        cast = self._weight_casts.get(done.storage)
        if cast is None or alike.storage in self._weight_casts:
            return []
        storage = Storage(cast.storage.nbytes, cast.storage.kind, cast.storage.op, cast.storage.module)
        if cast.storage in self.saved:
            self.saved[storage] = self.saved[cast.storage]
        self._weight_casts[alike.storage] = replace(cast, storage=storage)
        return [(cast.storage, storage)]

    def autocast_high(self, op: str, x: Tensor) -> Tensor:
        """The input of an operation that autocast runs in fp32 on this device."""
        if self.autocast and x.dtype in ("bf16", "fp16") and self.device in primitive(op).fp32_under_autocast:
            return self.to(x, "fp32")
        return x


_RANK = {"bool": 0, "uint8": 1, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "fp16": 5, "bf16": 5, "fp32": 6,
         "fp64": 7, "complex64": 8}  # fmt: skip


def promote(*dtypes: str) -> str:
    """The dtype of a mixed pointwise result (fp16 with bf16 gives fp32)."""
    floats = {dtype for dtype in dtypes if dtype in ("fp16", "bf16")}
    best = max(dtypes, key=lambda dtype: _RANK[dtype])
    return "fp32" if len(floats) == 2 and _RANK[best] == 5 else best


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
