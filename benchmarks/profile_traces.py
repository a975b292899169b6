"""`vramwise profile` beside Holistic Trace Analysis on the same traces: CPU time, peak memory, and how both grow.

    python benchmarks/profile_traces.py [TRACE …] [--hta-python PYTHON] [--runs 3] [--growth]

Without TRACE a synthetic trace of a data-parallel run is made (50 MB of JSON). HTA is run by the Python that
--hta-python names (an environment of its own with HolisticTraceAnalysis and pandas 2), whole process against whole
process, start-up included: HTA once for its temporal breakdown and its overlap alone, once also for what vramwise
prints of it besides (kernels by kind and name, idle time by cause); vramwise for everything that it prints, once as the
extra `profile` has it (msgspec), once as `pip install vramwise` alone does. --growth adds traces of 10 and of 500 MB:
time should grow as they do. A trace may be a file or a folder of ranks. A first run that does not count lets both write
their bytecode, as installers do.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import processes

LEAST_TIMES_CPU, LEAST_TIMES_ALONE, MOST_MEMORY_SHARE = 12.0, 6.0, 1 / 6
LAUNCHES_OF_50_MB = 34_000
WITH_BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}
VRAMWISE = "import sys; from vramwise.cli.main import command; sys.exit(command())"
"""What the installed script `vramwise` does."""
ALONE = "import sys; sys.modules['msgspec'] = None\n" + VRAMWISE
"""The same without the extra."""
HTA = """
import os, sys, warnings, logging
warnings.filterwarnings("ignore"); logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: os.path.abspath(sys.argv[1])}, trace_dir="")
analysis.get_temporal_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
"""
SAME_FIGURES = """
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_idle_time_breakdown(visualize=False)
"""
OURS, WITHOUT, TWO, SAME = "vramwise", "vramwise alone", "HTA, two figures", "HTA, the same figures"
KERNELS = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_cublas",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)


def write_trace(path: Path, launches: int) -> None:
    """A trace as Kineto writes it: for each launch an operator, a runtime call, two flow events and a kernel."""
    steps = 4
    with open(path, "w", encoding="utf-8") as file:
        head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}],
                "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8}}  # fmt: skip
        file.write(json.dumps(head, indent=2)[:-2] + ',\n  "traceEvents": [\n')
        for step in range(steps):
            event = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1,
                     "ts": 1_000_000 + step * launches // steps * 20, "dur": launches // steps * 20 - 1,
                     "args": {"External id": step}}  # fmt: skip
            file.write(json.dumps(event, indent=2) + ",\n")
        for i in range(launches):
            file.write(",\n".join(json.dumps(event, indent=2) for event in _launch(i)))
            file.write(",\n" if i < launches - 1 else "\n")
        file.write('  ],\n  "traceName": "synthetic"\n}\n')


def _launch(i: int) -> list[dict[str, object]]:
    start, kernel = 1_000_000 + 20 * i, KERNELS[2 if i % 10 == 9 else i % 2]
    flow = {"id": i + 10, "cat": "ac2g", "name": "ac2g"}
    args = {"External id": i, "queued": 0, "device": 0, "context": 1, "stream": 20 if i % 10 == 9 else 7,
            "correlation": i + 10, "registers per thread": 32, "shared memory": 0, "blocks per SM": 4.5,
            "warps per SM": 18.0, "grid": [594, 1, 1], "block": [128, 1, 1],
            "est. achieved occupancy %": 28}  # fmt: skip
    shapes = {"External id": i, "Sequence number": i, "Fwd thread id": 0, "Record function id": 0,
              "Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}  # fmt: skip
    return [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": start, "dur": 12, "args": shapes},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": start + 4, "dur": 5,
         "args": {"External id": i, "cbid": 211, "correlation": i + 10}},
        {"ph": "s", **flow, "pid": 1, "tid": 1, "ts": start + 4},
        {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": start + 30, "dur": 15, "args": args},
        {"ph": "f", **flow, "pid": 0, "tid": 7, "ts": start + 30, "bp": "e"},
    ]  # fmt: skip


def measured(trace: Path, hta_python: str | None, runs: int) -> dict[str, processes.Summary]:
    """Medians of each program on one trace, taken in turns."""
    flags = ["profile", str(trace), "--json"]
    compared = {OURS: [sys.executable, "-c", VRAMWISE, *flags], WITHOUT: [sys.executable, "-c", ALONE, *flags]}
    if hta_python is not None:
        compared |= {
            TWO: [hta_python, "-c", HTA, str(trace)],
            SAME: [hta_python, "-c", HTA + SAME_FIGURES, str(trace)],
        }
    taken: dict[str, list[processes.Run]] = {name: [] for name in compared}
    for turn in range(runs + 1):
        for name, command in compared.items():
            try:
                run = processes.run(command, WITH_BYTECODE)
            except RuntimeError:
                continue  # HTA ends in an error on some traces; the table says so
            if turn:
                taken[name].append(run)
    return {name: processes.summary(found) for name, found in taken.items() if found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--hta-python", metavar="PYTHON")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--growth", action="store_true")
    args = parser.parse_args()
    print(f"{processes.machine()}; medians of {args.runs} runs in turns")
    print(f"{'trace':<28} {'MB':>6}  " + "  ".join(f"{head:>8}" for head in HEADS))
    with tempfile.TemporaryDirectory() as name:
        sizes = {"synthetic": LAUNCHES_OF_50_MB} if not args.traces else {}
        if args.growth:
            sizes |= {"synthetic, 10 MB": LAUNCHES_OF_50_MB // 5, "synthetic, 500 MB": LAUNCHES_OF_50_MB * 10}
        traces = dict.fromkeys(map(str, args.traces), 0) | sizes
        for label, launches in traces.items():
            path = Path(label)
            if launches:
                path = Path(name) / "trace.json"
                write_trace(path, launches)
            _print_row(path.name if not launches else label, path, measured(path, args.hta_python, args.runs))
    times = f"{LEAST_TIMES_CPU:g} times less CPU time than HTA, {LEAST_TIMES_ALONE:g} times alone"
    print(f"goal: at least {times}, less than {MOST_MEMORY_SHARE:.0%} of its memory")


HEADS = ("CPU s", "alone", "MiB", "HTA: two", "same", "MiB", "÷ two", "÷ same", "alone ÷", "memory")


def _print_row(label: str, path: Path, found: dict[str, processes.Summary]) -> None:
    ours, alone, two, same = (found.get(name) for name in (OURS, WITHOUT, TWO, SAME))
    assert ours
    assert alone
    cells = [f"{ours.cpu_s:.2f}", f"{alone.cpu_s:.2f}", f"{ours.peak_mib:.0f}"]
    cells += [f"{one.cpu_s:.2f}" if one else "–" for one in (two, same)]
    cells.append(f"{two.peak_mib:.0f}" if two else "–")
    cells += [f"{one.cpu_s / ours.cpu_s:.1f} ×" if one else "–" for one in (two, same)]
    cells.append(f"{same.cpu_s / alone.cpu_s:.1f} ×" if same else "–")
    cells.append(f"{ours.peak_mib / two.peak_mib:.0%}" if two else "–")
    size = path.stat().st_size / 1e6
    print(f"{label[:28]:<28} {size:>6.1f}  " + "  ".join(f"{cell:>8}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
