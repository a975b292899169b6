"""The largest matmul rate that this machine's GPU reaches: what is achievable, beside the data sheet's peak."""

from __future__ import annotations

from importlib import import_module
from itertools import product
from typing import Any

from vramwise.errors import UsageError, VramwiseError
from vramwise.formats import dtype
from vramwise.utilization.throughput import TERA

SIDES = (2048, 4096, 6144, 8192, 10240, 12288, 16384)
INNER = (4096, 8192)
REPEATS, WARM_UPS = 20, 5
TORCH_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "tf32": "float32"}


def measured_peak(name: str) -> dict[str, Any]:
    """Dense m × k by k × n products over a sweep of shapes, timed by CUDA events, the best repeat of each.

    Only products as torch.matmul runs them: no fused epilogues, no fp8. Raises VramwiseError without torch or a GPU.
    """
    of_dtype = dtype(name).name
    if of_dtype not in TORCH_NAMES:
        raise UsageError(f"--measure-peak: expected one of {', '.join(TORCH_NAMES)}, got {of_dtype}")
    try:
        torch = import_module("torch")
    except ImportError:
        raise VramwiseError("--measure-peak needs torch with a GPU: pip install torch") from None
    if not torch.cuda.is_available():
        raise VramwiseError("--measure-peak: torch sees no GPU on this machine")
    torch.backends.cuda.matmul.allow_tf32 = of_dtype == "tf32"
    best, best_shape, shapes = 0.0, (0, 0, 0), 0
    for side, inner in product(SIDES, INNER):
        shape = (side, side, inner)
        best_of_shape = _rate(torch, shape, getattr(torch, TORCH_NAMES[of_dtype]))
        shapes += 1
        if best_of_shape > best:
            best, best_shape = best_of_shape, shape
    return {
        "gpu": torch.cuda.get_device_name(),
        "dtype": of_dtype,
        "tflops": best,
        "shape": best_shape,
        "shapes": shapes,
    }


def _rate(torch: Any, shape: tuple[int, int, int], kind: Any) -> float:
    m, n, k = shape
    a = torch.randn(m, k, device="cuda").to(kind)
    b = torch.randn(k, n, device="cuda").to(kind)
    out = torch.empty(m, n, device="cuda", dtype=kind)
    for _ in range(WARM_UPS):
        torch.matmul(a, b, out=out)
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(REPEATS)]
    for begin, end in events:
        begin.record()
        torch.matmul(a, b, out=out)
        end.record()
    torch.cuda.synchronize()
    fastest_ms = min(float(begin.elapsed_time(end)) for begin, end in events)
    return 2.0 * m * n * k / (fastest_ms / 1000) / TERA
