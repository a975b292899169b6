"""A `triton` whose kernels do nothing, and the little of CUDA that flash-linear-attention asks for when it is imported.

What its Python wrappers allocate and hand to autograd does not hang on what kernels write. The card is an H100 (132
multiprocessors, 232,448 bytes of shared memory), on which some of their tiles hang.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

MULTIPROCESSORS, SHARED_MEMORY = 132, 232_448


class Anything:
    """Whatever is asked of it is itself again: constants, dtypes and configurations of kernels that never run."""

    def __call__(self, *_: Any, **__: Any) -> Anything:
        return self

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __getitem__(self, _: Any) -> Anything:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __or__(self, _: Any) -> Anything:
        return self

    __ror__ = __or__

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        return ()

    def __bool__(self) -> bool:
        return False


class Kernel(Anything):
    """`kernel[grid](…)` launches nothing."""

    def __init__(self, function: Any = None, *_: Any, **__: Any) -> None:
        self.fn = function


def _jit(function: Any = None, **_: Any) -> Any:
    return Kernel(function) if function is not None else Kernel


def _decorator(*_: Any, **__: Any) -> Callable[[Any], Any]:
    return lambda function: function


def _next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()


class _Module(types.ModuleType):
    __path__: Sequence[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.split(".", 1)[0] not in ("triton", "einops"):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        made = _Module(spec.name)
        if spec.name == "triton":
            cdiv = {"cdiv": lambda a, b: -(-a // b), "next_power_of_2": _next_power_of_2}
            made.__dict__.update({"__version__": "3.3.1", "autotune": _decorator, "heuristics": _decorator, **cdiv})
        if spec.name == "triton.runtime":
            properties = {"multiprocessor_count": MULTIPROCESSORS, "max_shared_mem": SHARED_MEMORY}
            utils = types.SimpleNamespace(get_device_properties=lambda _: properties)
            target = types.SimpleNamespace(backend="cuda", arch=90, warp_size=32)
            active = types.SimpleNamespace(get_current_target=lambda: target, utils=utils)
            made.__dict__["driver"] = types.SimpleNamespace(active=active)
        made.__dict__.update(jit=_jit, JITFunction=Kernel, Autotuner=Kernel)
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is run."""


def install() -> None:
    """Before the first import of `fla`."""
    sys.meta_path.insert(0, _Finder())
    importlib.import_module("triton.runtime")
    torch.cuda.get_device_name = lambda *_: "NVIDIA H100 80GB HBM3"
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.device_count = lambda: 1
    torch.cuda.device = lambda *_: contextlib.nullcontext()
    torch.compile = lambda function=None, **_: _decorator() if function is None else function
    compiled: Any = types.ModuleType("causal_conv1d_cuda")
    for name in ("causal_conv1d_fwd", "causal_conv1d_bwd", "causal_conv1d_update"):
        setattr(compiled, name, lambda *_: None)
    sys.modules["causal_conv1d_cuda"] = compiled


def as_on_a_card() -> None:
    """An H100 has the shared memory that any tile asks for; tensors on the CPU have no index to look it up by."""
    hardware: Any = importlib.import_module("fla.utils")
    hardware.check_shared_mem = lambda *_: True
