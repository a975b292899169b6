"""A CUDA card that is not there: autograd, kernels' shapes and `torch.cuda` answer as on one, and no data exists.

A CPU build of torch refuses autograd on fake CUDA tensors for three reasons, each taken away with torch's own means:

- no device guard is registered. `torch._C._ensureCUDADeviceGuardSet` puts in torch's own no-op guard (c10
  core/impl/DeviceGuardImplInterface.h, `NoOpDeviceGuardImpl`) once some guard says that there are no devices; a table
  of functions that all return 0 says so
- the CUDA hooks say that CUDA was not built (ATen/detail/AcceleratorHooksInterface.h: `isBuilt` is the third entry of
  their table of virtual functions, `hasPrimaryContext` the fifth), which ends the engine's sums of gradients
- three operations have a CUDA kernel and are put together from others where there is none; a kernel in name keeps them
  whole (ATen/native/native_functions.yaml: silu_backward, mish_backward, _fused_rms_norm)

Tables and code stay in memory for good: the interpreter's end calls them. A CUDA build needs the first step alone.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from vramwise.errors import VramwiseError
from vramwise.measure.libraries import library

TESTED: Final = ("2.13",)
"""Versions of torch whose tables of functions were tried."""

_RETURN: Final = {
    "x86_64": (b"\x31\xc0\xc3", b"\xb8\x01\x00\x00\x00\xc3"),
    "aarch64": (bytes.fromhex("000080d2c0035fd6"), bytes.fromhex("200080d2c0035fd6")),
}
"""Machine code of a function that returns 0, and of one that returns 1."""
_CUDA: Final = 1
_SLOTS: Final = 64
_IS_BUILT, _HAS_PRIMARY_CONTEXT = 2, 4
_BEFORE_TABLE: Final = 2
"""Words before a table of virtual functions (Itanium ABI): offset to top, type information."""
_WHOLE_ON_CUDA: Final = ("silu_backward", "mish_backward", "_fused_rms_norm")

_kept: list[Any] = []


def refusal() -> str | None:
    """Why no card can be stood in for here, in one sentence; None where it can."""
    torch = library("torch")
    version = ".".join(torch.__version__.split(".")[:2])
    if torch.version.cuda is None and torch.version.hip is None and version not in TESTED:
        known = ", ".join(TESTED)
        return f"dry-run was tried with torch {known}, and this is {torch.__version__}: pip install 'torch=={known}.*'"
    if platform.system() != "Linux" or platform.machine() not in _RETURN:
        return f"dry-run needs Linux on x86-64 or ARM, not {platform.system()} on {platform.machine()}"
    return None


def install() -> Callable[[], None]:
    """Make autograd run on fake CUDA tensors in this process; the answer undoes what can be undone.

    Raises VramwiseError where `refusal` says why, or where the libraries do not look as they did when this was tried.
    """
    reason = refusal()
    if reason is not None:
        raise VramwiseError(reason)
    torch = library("torch")
    libraries = Path(torch.__file__).parent / "lib"
    zero, one = (_code(code) for code in _RETURN[platform.machine()])
    _put_in_guard(ctypes.CDLL(str(libraries / "libc10.so")), zero)
    if torch.version.cuda is not None or torch.version.hip is not None:
        return lambda: None
    undo = _say_built(ctypes.CDLL(str(libraries / "libtorch_cpu.so")), zero, one)
    _keep_whole()
    return undo


def _code(instructions: bytes) -> int:
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(instructions)
    _kept.append(page)
    return ctypes.addressof(ctypes.c_char.from_buffer(page))


def _put_in_guard(c10: ctypes.CDLL, zero: int) -> None:
    methods = (ctypes.c_void_p * _SLOTS)(*[zero] * _SLOTS)
    stub = (ctypes.c_void_p * 8)(ctypes.addressof(methods))
    _kept.extend((methods, stub))
    guards = (ctypes.c_void_p * _SLOTS).in_dll(c10, "_ZN3c104impl26device_guard_impl_registryE")
    if guards[_CUDA] is None:
        guards[_CUDA] = ctypes.addressof(stub)
        library("torch")._C._ensureCUDADeviceGuardSet()


def _say_built(cpu: ctypes.CDLL, zero: int, one: int) -> Callable[[], None]:
    """Give the CUDA hooks a copy of their table in which CUDA was built."""
    get_hooks = cpu["_ZN2at6detail12getCUDAHooksEv"]
    get_hooks.restype = ctypes.c_void_p
    hooks = ctypes.cast(get_hooks(), ctypes.POINTER(ctypes.c_void_p))
    before = hooks[0]
    if before is None:
        raise VramwiseError("torch's CUDA hooks have no table of functions: this build of torch was not tried")
    table = ctypes.cast(before, ctypes.POINTER(ctypes.c_void_p))
    if ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(table[_IS_BUILT])(ctypes.addressof(hooks.contents)):
        return lambda: None
    copied = (ctypes.c_void_p * (_SLOTS + _BEFORE_TABLE))(*(table[i - _BEFORE_TABLE] for i in range(_SLOTS + 2)))
    copied[_IS_BUILT + _BEFORE_TABLE] = one
    copied[_HAS_PRIMARY_CONTEXT + _BEFORE_TABLE] = zero
    _kept.append(copied)
    hooks[0] = ctypes.addressof(copied) + _BEFORE_TABLE * ctypes.sizeof(ctypes.c_void_p)

    def undo() -> None:
        hooks[0] = before

    return undo


def _keep_whole() -> None:
    torch = library("torch")
    if any(name == "whole" for name, _ in _named):
        return
    registered = torch.library.Library("aten", "IMPL")
    for name in _WHOLE_ON_CUDA:
        registered.impl(name, _no_kernel, "CUDA")
    _named.append(("whole", registered))


_named: list[tuple[str, Any]] = []


def _no_kernel(*_: object, **__: object) -> object:
    raise VramwiseError("a fake tensor reached a kernel")


def holders(function: object, within: str = "") -> list[tuple[Any, str]]:
    """Modules that have taken a function over, and the names by which they call it; `within`: how modules' begin."""
    return [
        (module, name)
        for path, module in list(sys.modules.items())
        if module is not None and path.startswith(within)
        for name, value in list(getattr(module, "__dict__", {}).items())
        if value is function
    ]


@contextmanager
def replaced(pairs: Sequence[tuple[object, str, object]]) -> Iterator[None]:
    """Attributes of objects replaced for a while."""
    missing = object()
    before = [(owner, name, vars(owner).get(name, missing)) for owner, name, _ in pairs]
    for owner, name, value in pairs:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in reversed(before):
            if value is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
