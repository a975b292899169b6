"""What vLLM imports and this machine lacks: compiled extensions, Triton, packages that need a GPU."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch

PACKAGES = frozenset({
    "triton", "flashinfer", "cuda", "xgrammar", "cutlass", "quack", "tilelang", "tvm_ffi", "llguidance",
    "outlines_core", "lmformatenforcer", "numba", "cv2", "mistral_common", "soundfile", "nvtx",
    "model_hosting_container_standards", "openai_harmony",
})  # fmt: skip
EXTENSIONS = re.compile(r"_\w*C(_stable_libtorch)?|_rs|cumem_allocator|_flashmla\w*|_rust\w*")
NAMESPACES = frozenset({
    "_C", "_moe_C", "_C_cache_ops", "_C_cuda_utils", "_C_custom_ar", "_C_utils", "_C_stable_libtorch",
    "_vllm_fa2_C", "_vllm_fa3_C", "_vllm_fa4_C", "_flashmla_C", "_flashmla_extension_C",
})  # fmt: skip


class Anything:
    """Whatever is asked of it: any attribute, call, index; a decorator returns what it decorates."""

    def __init__(self, *args: object, **kwargs: object) -> None: ...

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__") and key.endswith("__"):
            raise AttributeError(key)
        return Anything()

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return args[0] if len(args) == 1 and not kwargs and isinstance(args[0], FunctionType | type) else Anything()

    def __getitem__(self, key: object) -> Anything:
        return Anything()

    def __iter__(self) -> Iterator[object]:
        return iter(())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> object:
        from pydantic_core import core_schema

        return core_schema.any_schema()

    def __mro_entries__(self, bases: object) -> tuple[type, ...]:
        return (object,)

    def __or__(self, other: object) -> Anything:
        return self

    __ror__ = __or__
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return False


class _AnyClass(type):
    """A class of a missing package: `isinstance` of it is false, its attributes are functions."""

    def __getattr__(cls, key: str) -> Any:
        if key.startswith("__"):
            raise AttributeError(key)
        return lambda *args, **kwargs: Anything()


class Kernel:
    """A Triton kernel: a launch does nothing, since the Python around it allocates its outputs."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.fn = function
        self.configs: list[object] = []
        self.arg_names: list[str] = []
        functools.update_wrapper(self, function)

    def __getitem__(self, grid: object) -> Callable[..., None]:
        def launch(*args: object, **kwargs: object) -> None:
            if callable(grid):
                with contextlib.suppress(Exception):
                    grid(kwargs)

        return launch

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self.fn(*args, **kwargs)

    def warmup(self, *args: object, **kwargs: object) -> None: ...

    run = warmup


class _Config:
    """A configuration of Triton's autotuner."""

    def __init__(self, kwargs: object = None, num_warps: int = 4, num_stages: int = 3, **others: object) -> None:
        self.kwargs, self.num_warps, self.num_stages = kwargs or {}, num_warps, num_stages
        self.__dict__.update(others)


def _jit(function: Callable[..., object] | None = None, **kwargs: object) -> object:
    return Kernel(function) if function is not None else Kernel


def _decorator(*args: object, **kwargs: object) -> object:
    return lambda function: function


def _driver() -> SimpleNamespace:
    capability = torch.cuda.get_device_capability()
    target = SimpleNamespace(backend="cuda", arch=10 * capability[0] + capability[1], warp_size=32)
    return SimpleNamespace(get_current_target=lambda: target, get_current_device=lambda: 0)


_CONTENTS: dict[str, Callable[[], dict[str, object]]] = {
    "triton": lambda: {
        "jit": _jit, "autotune": _decorator, "heuristics": _decorator, "__version__": "3.6.0", "Config": _Config,
        "cdiv": lambda a, b: -(-a // b), "set_allocator": lambda f: None,
        "next_power_of_2": lambda n: 1 << (int(n) - 1).bit_length() if n > 0 else 1,
    },
    "triton.language": lambda: {"constexpr": lambda value=None: value, "core": Anything()},
    "triton.backends": lambda: {
        "backends": {"nvidia": SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True))}
    },
    "triton.runtime": lambda: {"JITFunction": Kernel, "driver": SimpleNamespace(active=_driver())},
    "triton.runtime.jit": lambda: {"JITFunction": Kernel, "KernelInterface": Kernel},
}  # fmt: skip


class _AbsentModule(ModuleType):
    __path__: list[str] = []  # noqa: RUF012
    __version__ = "9.9.9"

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__") and key.endswith("__"):
            raise AttributeError(key)
        full = f"{self.__name__}.{key}"
        if full in sys.modules:
            return sys.modules[full]
        if full in _CONTENTS:
            return importlib.import_module(full)
        made = _AnyClass(key, (Anything,), {}) if key[0].isupper() else Anything()
        setattr(self, key, made)
        return made


class AbsentPackages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last resort of imports: an empty module for each of PACKAGES and vLLM's EXTENSIONS."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        first, _, last = name.partition(".")[0], "", name.rpartition(".")[2]
        if first in PACKAGES or (first == "vllm" and EXTENSIONS.fullmatch(last)):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ in _CONTENTS:
            module.__dict__.update(_CONTENTS[module.__name__]())


class CompiledOperations:
    """A namespace such as `torch.ops._C`: results by `results`, else nothing, which is right where an operation writes
    into what it is given. `unanswered` counts the latter, to be looked at: one that returns a tensor needs a result."""

    def __init__(self, name: str, results: dict[str, Callable[..., object]], unanswered: Counter[str]) -> None:
        self.__dict__.update(_name=name, _results=results, _unanswered=unanswered)

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__"):
            raise AttributeError(key)
        made = self.__dict__[key] = _Operation(f"{self._name}::{key}", self._results, self._unanswered)
        return made


class _Operation:
    def __init__(self, name: str, results: dict[str, Callable[..., object]], unanswered: Counter[str]) -> None:
        self._name, self._results, self._unanswered = name, results, unanswered
        self.__name__ = self.__qualname__ = name

    def __getattr__(self, overload: str) -> Any:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return self

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if self._name in self._results:
            return self._results[self._name](*args, **kwargs)
        self._unanswered[self._name] += 1
        return None


def install(results: dict[str, Callable[..., Any]], unanswered: Counter[str]) -> None:
    """Missing packages can be imported, compiled operations called; vLLM's own `register_fake` functions go to
    `results`."""
    sys.meta_path.append(AbsentPackages())
    anything: Any = torch.library
    vision = anything.Library("torchvision", "DEF")  # operators that a CUDA build of torchvision registers
    for name in ("nms", "qnms"):
        vision.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _alive.append(vision)
    original = torch.library.register_fake

    def register_fake(operation: Any, function: Any = None, /, **kwargs: Any) -> object:
        if function is None:
            return lambda f: register_fake(operation, f, **kwargs)
        name = operation if isinstance(operation, str) else getattr(operation, "_name", str(operation))
        if name.partition("::")[0] not in NAMESPACES:
            return original(operation, function, **kwargs)
        results[name] = function
        return function

    anything.register_fake = register_fake
    for name in NAMESPACES:
        setattr(torch.ops, name, CompiledOperations(name, results, unanswered))


_alive: list[Any] = []
