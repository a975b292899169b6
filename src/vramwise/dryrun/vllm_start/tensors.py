"""CPU tensors are real, CUDA tensors are fake: the dispatch mode under which vLLM runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from vramwise.dryrun.vllm_start.memory import CardMemory
from vramwise.units import MIB

MATRIX_PRODUCTS = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"})
CUBLAS_WORKSPACE = {True: 32 * MIB, False: 8_519_680}
"""Bytes of one handle and stream, from compute capability 9.0 on and before: torch aten/src/ATen/cuda/
CublasHandlePool.cpp getChosenWorkspaceSize (`:4096:2:16:8`)."""
SEGMENTED_SORT_ROWS = 128
"""From so many rows on torch sorts all of them in one call: aten/src/ATen/native/cuda/Sort.cu."""


def sort_blocks(values: torch.Tensor) -> list[int]:
    """Bytes that a sort of many rows takes beside its outputs: int64 indices to begin with (aten/src/ATen/native/cuda/
    Sort.cu segmented_sort_pairs) and CUB's second buffers of keys and indices."""
    count = values.numel()
    return [8 * count, count * (values.element_size() + 8)]


class FakeCuda(TorchDispatchMode):
    """Calls that touch CUDA run on fake tensors, and what they make is counted; all others run as they are.

    `custom_operations`: Python bodies of vLLM's own operations, which run in place of the dispatcher's entries, so that
    what they allocate inside is seen. What a call brings from the card to the host is zeros.
    """

    def __init__(
        self, memory: CardMemory, custom_operations: Mapping[str, Callable[..., Any]], capability: tuple[int, int]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._memory = memory
        self._custom_operations = custom_operations
        self._workspace_bytes = CUBLAS_WORKSPACE[capability >= (9, 0)]
        self._has_workspace = False
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)

    def __enter__(self) -> FakeCuda:
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device="cuda"): made on the CPU, then copied
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name: str = func._schema.name
        body = self._custom_operations.get(name)
        if body is not None:
            with self:
                return body(*args, **kwargs)
        fakes = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, FakeTensor)]
        device = kwargs.get("device")
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if name in ("aten::pin_memory", "aten::_pin_memory"):
            return args[0]
        if not fakes and (device is None or torch.device(device).type != "cuda"):
            return func(*args, **kwargs)
        if name in _WITHOUT_MEMORY:
            return _WITHOUT_MEMORY[name](args)
        if name == "aten::copy_" and not isinstance(args[0], FakeTensor):
            return args[0]
        if isinstance(kwargs.get("generator"), torch._C.Generator):
            kwargs["generator"] = None
        if name in MATRIX_PRODUCTS and not self._has_workspace:
            self._has_workspace = True
            self._memory.stays(self._workspace_bytes, "cuBLAS workspace")
        args, kwargs = tree_map(self.view_of_host, (args, kwargs))
        with self._fake:
            made = func(*args, **kwargs)
        inputs = {id(x) for x in fakes}
        made = tree_map(lambda value: self._counted(value, name, inputs), made)
        if name == "aten::sort" and fakes[0].numel() >= SEGMENTED_SORT_ROWS * fakes[0].shape[-1]:
            self._memory.passes(sort_blocks(fakes[0]), "sort")
        return made

    def view_of_host(self, value: object) -> Any:
        """The card's view of a host tensor, which takes nothing there; other values as they are."""
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return value
        with self._fake:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)

    def _counted(self, value: object, name: str, inputs: set[int]) -> Any:
        if not isinstance(value, FakeTensor):
            return value
        if value.fake_device.type == "cpu":
            return torch.zeros(value.shape, dtype=value.dtype)
        if value.fake_device.type == "cuda" and id(value) not in inputs:
            self._memory.born(value, name.removeprefix("aten::"))
        return value


def _every_place(args: Any) -> torch.Tensor:
    """`nonzero` of unknown values: at most every element."""
    return torch.empty((args[0].numel(), args[0].dim()), dtype=torch.int64, device="cuda")


_WITHOUT_MEMORY: dict[str, Callable[[Any], Any]] = {
    "aten::_local_scalar_dense": lambda args: 0.0 if args[0].dtype.is_floating_point else 0,
    "aten::record_stream": lambda args: None,
    "aten::is_pinned": lambda args: False,
    "aten::nonzero": _every_place,
}
