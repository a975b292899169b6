"""Small traces with known answers, in the forms in which Kineto has written them."""

from __future__ import annotations

import gzip
import json
from typing import Any

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_cublas"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
COPY = "Memcpy HtoD (Pinned -> Device)"


def on_gpu(name: str, start: float, duration: float, correlation: int, stream: int = 7, **args: Any) -> dict[str, Any]:
    """A kernel or a copy, times in microseconds."""
    category = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
    said = {"device": 0, "stream": stream, "correlation": correlation, **args}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": start,
        "dur": duration,
        "args": said,
    }


def launch(start: float, correlation: int, duration: float = 2) -> dict[str, Any]:
    """The runtime call that launched it."""
    said = {"cbid": 211, "correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9,
            "ts": start, "dur": duration, "args": said}  # fmt: skip


def step(number: int, start: float, duration: float) -> dict[str, Any]:
    """A `ProfilerStep` annotation of the CPU."""
    return {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 9, "tid": 9,
            "ts": start, "dur": duration, "args": {"External id": number}}  # fmt: skip


def two_steps() -> list[dict[str, Any]]:
    """Two steps: compute 100-200, all-reduce 150-250 (half under compute), copy 300-310; then compute 400-500.

    Launches: 90, 95, 290, 350; of the gaps 250-300 and 310-400 the CPU was late for 40 + 40, and 10 + 50 are latency.
    """
    collective = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 4,
                  "dtype": "BFloat16", "Process Group Name": "0"}  # fmt: skip
    return [
        step(1, 80, 240), step(2, 320, 200),
        launch(90, 1), launch(95, 2), launch(290, 3), launch(350, 4),
        on_gpu(GEMM, 100, 100, 1), on_gpu(ALL_REDUCE, 150, 100, 2, stream=20, **collective),
        on_gpu(COPY, 300, 10, 3), on_gpu(ADD, 400, 100, 4),
    ]  # fmt: skip


def document(events: list[dict[str, Any]], rank: int | None = 0, **header: Any) -> dict[str, Any]:
    """A whole trace."""
    info = {} if rank is None else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4}}
    devices = [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}]
    return {"schemaVersion": 1, "deviceProperties": devices, **info, **header, "traceEvents": events}


def text(value: Any) -> bytes:
    """JSON text."""
    return json.dumps(value).encode()


def packed(value: Any) -> bytes:
    """The same through gzip."""
    return gzip.compress(text(value))
