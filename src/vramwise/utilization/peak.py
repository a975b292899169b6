"""The largest matmul rate that this machine's GPU or processor reaches: what is achievable, beside the data sheet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import import_module
from itertools import product
from types import ModuleType

from vramwise.errors import UsageError, VramwiseError
from vramwise.formats import dtype
from vramwise.utilization.throughput import TERA

SIDES = {"cuda": (2048, 4096, 6144, 8192, 10240, 12288, 16384), "cpu": (256, 512, 1024)}
INNER = {"cuda": (4096, 8192), "cpu": (512, 1024)}
"""Sides m = n and inner sizes k by device; a processor's rate no longer grows with larger ones."""
REPEATS, WARM_UPS = 20, 5
TORCH_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "tf32": "float32"}


def measured_peak(name: str, device: str = "cuda") -> dict[str, object]:
    """Dense m × k by k × n products over a sweep of shapes, the best repeat of each, timed by CUDA events on a GPU.

    Only products as torch.matmul runs them: no fused epilogues, no fp8. `device` is `cuda` (AMD's too, under ROCm) or
    `cpu`. Raises VramwiseError without torch or that device.
    Raises UsageError for a format that torch does not multiply.
    """
    of_dtype = dtype(name).name
    if of_dtype not in TORCH_NAMES:
        raise UsageError(f"--measure-peak: expected one of {', '.join(TORCH_NAMES)}, got {of_dtype}")
    try:
        torch = import_module("torch")
    except ImportError:
        raise VramwiseError("--measure-peak needs torch with a GPU: pip install torch") from None
    if device == "cuda" and not torch.cuda.is_available():
        raise VramwiseError("--measure-peak: torch sees no GPU on this machine (--device cpu measures the processor)")
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = of_dtype == "tf32"
    kind = getattr(torch, TORCH_NAMES[of_dtype])
    shapes = [(side, side, inner) for side, inner in product(SIDES[device], INNER[device])]
    rates = {shape: _rate(torch, shape, kind, device) for shape in shapes}
    best = max(shapes, key=rates.__getitem__)
    of = torch.cuda.get_device_name() if device == "cuda" else f"processor, {torch.get_num_threads()} threads"
    return {"gpu": of, "dtype": of_dtype, "tflops": rates[best], "shape": best, "shapes": len(shapes)}


def _rate(torch: ModuleType, shape: tuple[int, int, int], kind: object, device: str) -> float:
    m, n, k = shape
    a = torch.randn(m, k, device=device).to(kind)
    b = torch.randn(k, n, device=device).to(kind)
    out = torch.empty(m, n, device=device, dtype=kind)
    for _ in range(WARM_UPS):
        torch.matmul(a, b, out=out)
    timed = _timed_on_gpu if device == "cuda" else _timed_on_processor
    return 2.0 * m * n * k / min(timed(torch, a, b, out)) / TERA


def _timed_on_gpu(torch: ModuleType, a: object, b: object, out: object) -> Iterator[float]:
    """Seconds of each repeat; the events are read once all have run, so that the queue never runs dry."""
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(REPEATS)]
    for begin, end in events:
        begin.record()
        torch.matmul(a, b, out=out)
        end.record()
    torch.cuda.synchronize()
    for begin, end in events:
        yield float(begin.elapsed_time(end)) / 1000


def _timed_on_processor(torch: ModuleType, a: object, b: object, out: object) -> Iterator[float]:
    for _ in range(REPEATS):
        begin = time.perf_counter()
        torch.matmul(a, b, out=out)
        yield time.perf_counter() - begin
