"""The tape itself: makes tensors, records nodes, keeps the set of saved storages, applies autocast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from vramwise.errors import UndescribedOperationError
from vramwise.models.autograd.primitives import Device, primitive
from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import (
    ITEM_BYTES,
    Node,
    Storage,
    StorageKind,
    Tensor,
    contiguous_strides,
    numel_of,
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
