"""CUDA rules on a machine without a GPU: real modules on fake CUDA tensors, in a process of its own.

A CPU build of torch refuses autograd on fake CUDA tensors only because no CUDA device guard is registered. Its own
no-op guard, meant for exactly this, is put in by `torch._C._ensureCUDADeviceGuardSet()` once *some* guard reports
that there are no devices; that first guard is a stub whose every method returns 0. Shapes, dtypes, strides and the
choice of kernels are then those of CUDA; no numbers exist. Eager attention only: the choice between SDPA kernels is
not available in a CPU build.

Run as a script: one JSON job a line on stdin, one number a line on stdout.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warm_python import WarmPython

_RETURN_ZERO = {"x86_64": b"\x31\xc0\xc3", "aarch64": bytes.fromhex("000080d2c0035fd6")}
_CUDA = 1
_alive: list[Any] = []


def available() -> bool:
    return platform.system() == "Linux" and platform.machine() in _RETURN_ZERO


def install_noop_guard() -> None:
    """Registers torch's own no-op CUDA guard."""
    import torch

    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(_RETURN_ZERO[platform.machine()])
    code = ctypes.addressof(ctypes.c_char.from_buffer(page))
    methods = (ctypes.c_void_p * 64)(*[code] * 64)
    stub = (ctypes.c_void_p * 8)(ctypes.addressof(methods))
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * 64).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    if guards[_CUDA] is None:
        guards[_CUDA] = ctypes.addressof(stub)
        torch._C._ensureCUDADeviceGuardSet()
    _alive.extend([page, methods, stub])


def saved_on_fake_cuda(jobs: list[dict[str, Any]], warm: WarmPython) -> list[int | str]:
    """Saved bytes of each job (keyword arguments of `saved_by_autograd` but the device), or the error's text."""
    process = warm.run([sys.executable, __file__], "\n".join(json.dumps(job) for job in jobs))
    if process.returncode:
        raise RuntimeError(f"the recorder ended with {process.returncode}: {process.stderr[-2000:]}")
    return [json.loads(line) for line in process.stdout.splitlines()]


def main() -> None:
    gc.disable()  # imports leave no garbage, and looking for it takes a quarter of their time
    from saved_by_autograd import saved_by_autograd
    from torch._subclasses.fake_tensor import FakeTensorMode

    gc.enable()
    install_noop_guard()
    for line in sys.stdin:
        with FakeTensorMode(allow_non_fake_inputs=True):
            try:
                answer: int | str = saved_by_autograd(**json.loads(line), device="cuda")
            except Exception as problem:
                answer = f"{type(problem).__name__}: {problem}"
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
