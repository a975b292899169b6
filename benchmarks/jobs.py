"""A whole job of synthetic traces: memory and time of the map and of the reduce, and whether planted faults are found.

    python benchmarks/jobs.py [--traces 64] [--trace-mb 50] [--ranks 1024] [--collectives 20000] [--keep FOLDER]

The map reads traces as Kineto writes them, one a rank, each with a clock of its own: first each file alone, then all of
them with --jobs 2. The reduce answers from tables that are written directly: ranks in data-, pipeline- and tensor-
parallel groups, once without a fault and once with a late rank, a slow link, a heavy stage and busy experts planted.
Peaks are those of the largest single process.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import processes

MOST_MAP_MIB, MOST_MAP_TIME = 120.0, 1.15
MOST_REDUCE_S, MOST_REDUCE_MIB = 20.0, 1024.0
MAIN = "import sys; from vramwise.cli.main import main; sys.exit(main())"
WITH_BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}
BYTES_PER_LAUNCH = 1_475
STEPS = 4
TENSOR, STAGES = 8, 4
GEMM = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_cublas",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
)
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True)
class Faults:
    """What is planted, each as a rank or the number of a group; None for none."""

    late_rank: int | None = None
    slow_group: int | None = None
    heavy_stage: int | None = None
    busy_rank: int | None = None
    full_rank: int | None = None


CLEAN = Faults()


def write_trace(path: Path, rank: int, ranks: int, launches: int, late_us: float = 0.0) -> None:
    """A rank's trace: for each launch an operator, a runtime call, two flow events and a kernel, every tenth NCCL's.

    The clock begins somewhere else on each rank. A rank that is `late_us` later is in each collective so much shorter.
    """
    clock = 1_000_000 + 3_141_593 * rank
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks}}  # fmt: skip
    with gzip.open(path, "wt", compresslevel=1, encoding="utf-8") as file:
        file.write(json.dumps(head, indent=2)[:-2] + ',\n  "traceEvents": [\n')
        of_step = launches // STEPS * 20
        for step in range(STEPS):
            mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1,
                    "ts": clock + step * of_step, "dur": of_step - 1, "args": {"External id": step}}  # fmt: skip
            file.write(json.dumps(mark, indent=2) + ",\n")
        compute, collective = (_template(communicates, ranks) for communicates in (False, True))
        for i in range(launches):
            start = clock + 20 * i
            known = {"@I@": i, "@C@": i + 10, "@T0@": start, "@T1@": start + 4, "@N@": i // 10}
            if i % 10 == 9:
                text = collective
                known |= {"@T2@": start + 30 + late_us, "@D@": 15 - late_us, "@K@": NCCL}
            else:
                text = compute
                known |= {"@T2@": start + 30, "@D@": 15, "@K@": GEMM[i % 2]}
            for place, value in known.items():
                text = text.replace(place, str(value))
            file.write(text + (",\n" if i < launches - 1 else "\n"))
        file.write('  ],\n  "traceName": "synthetic"\n}\n')


def _template(communicates: bool, ranks: int) -> str:
    """The events of one launch as text, with marks for what differs."""
    stream = 20 if communicates else 7
    flow = {"id": "@C@", "cat": "ac2g", "name": "ac2g"}
    args: dict[str, object] = {
        "External id": "@I@", "queued": 0, "device": 0, "context": 1, "stream": stream, "correlation": "@C@",
        "registers per thread": 32, "shared memory": 0, "blocks per SM": 4.5, "warps per SM": 18.0,
        "grid": [594, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 28,
    }  # fmt: skip
    if communicates:
        args |= {"Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20,
                 "Group size": ranks, "dtype": "BFloat16", "Process Group Name": "0", "Seq": "@N@",
                 "Process Group Ranks": f"[{', '.join(map(str, range(min(ranks, 30))))}]"}  # fmt: skip
    shapes = {"External id": "@I@", "Sequence number": "@I@", "Fwd thread id": 0, "Record function id": 0,
              "Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}  # fmt: skip
    events: list[dict[str, object]] = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": "@T0@", "dur": 12, "args": shapes},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": "@T1@", "dur": 5,
         "args": {"External id": "@I@", "cbid": 211, "correlation": "@C@"}},
        {"ph": "s", **flow, "pid": 1, "tid": 1, "ts": "@T1@"},
        {"ph": "X", "cat": "kernel", "name": "@K@", "pid": 0, "tid": stream, "ts": "@T2@", "dur": "@D@", "args": args},
        {"ph": "f", **flow, "pid": 0, "tid": stream, "ts": "@T2@", "bp": "e"},
    ]  # fmt: skip
    text = ",\n".join(json.dumps(event, indent=2) for event in events)
    for number in ("@I@", "@C@", "@T0@", "@T1@", "@T2@", "@D@", "@N@"):
        text = text.replace(f'"{number}"', number)
    return text


def write_tables(folder: Path, ranks: int, collectives: int, faults: Faults = CLEAN) -> None:
    """The folder of a job as `vramwise profile -o` fills it, without traces: `collectives` on each rank."""
    from vramwise.utilization.job.parquet import ParquetFile
    from vramwise.utilization.job.part import columns_of
    from vramwise.utilization.job.schema import ABOUT, SCHEMA, TABLES

    folder.mkdir(parents=True)
    (folder / ABOUT).write_text(json.dumps({"schema": SCHEMA, "vramwise": "synthetic"}), "utf-8")
    for rank in range(ranks):
        part = folder / "parts" / f"rank{rank}"
        part.mkdir(parents=True)
        trace = f"node{rank // TENSOR:04d}/rank{rank}.json"
        calls = _calls(rank, ranks, collectives, faults)
        rows = _few_rows(rank, ranks, calls, faults)
        for table, kinds in TABLES.items():
            written = ParquetFile(kinds)
            if table == "collectives":
                written.add({"trace": [trace] * len(calls["number"]), **calls})
            else:
                written.add(columns_of([{"trace": trace, **row} for row in rows.get(table, [])]))
            (part / f"{table}.parquet").write_bytes(written.content())


COMPUTE_NS = 60_000
"""Between two collectives."""


def _groups(rank: int, ranks: int) -> Iterator[tuple[str, str, int, range, int, float]]:
    """The groups of a rank: name, kind, its number among its like, members, bytes, share of all calls."""
    tensor, stage, replica = rank % TENSOR, rank // TENSOR % STAGES, rank // (TENSOR * STAGES)
    node = range(rank - tensor, rank - tensor + TENSOR)
    first = replica * TENSOR * STAGES + tensor
    yield "tp", "all-reduce", rank // TENSOR, node, 16 << 20, 0.5
    yield "ep", "all-to-all", rank // TENSOR, node, 8 << 20, 0.2
    yield "pp", "send/receive", replica * TENSOR + tensor, range(first, first + TENSOR * STAGES, TENSOR), 4 << 20, 0.1
    alike = range(stage * TENSOR + tensor, ranks, TENSOR * STAGES)
    yield "dp", "reduce-scatter", stage * TENSOR + tensor, alike, 64 << 20, 0.2


def _calls(rank: int, ranks: int, collectives: int, faults: Faults) -> dict[str, Any]:
    """The columns of a rank's collectives: the transfer, and what it waits for others."""
    import numpy as np

    random = np.random.default_rng(rank)
    columns: dict[str, list[Any]] = {}
    for group, kind, number, members, size, share in _groups(rank, ranks):
        count = round(collectives * share)
        transfer = np.full(count, 200_000 if group == "dp" else 80_000, np.int64)
        noise = random.integers(0, 1000, count)
        waits = np.zeros(count, np.int64)
        if group == "tp" and faults.late_rank in members and rank != faults.late_rank:
            waits += 40_000
        if group == "ep" and faults.busy_rank in members and rank != faults.busy_rank:
            waits += 50_000
        if group == "pp" and faults.heavy_stage is not None and rank // TENSOR % STAGES != faults.heavy_stage:
            waits += 100_000
        if group == "dp" and number == faults.slow_group:
            transfer *= 3
        duration = transfer + noise + waits
        start = rank * 1_000_003 + np.cumsum(duration + COMPUTE_NS)
        found = {
            "step": np.arange(count) * STEPS // count, "group": [group] * count, "members": [_listed(members)] * count,
            "group_size": np.full(count, len(members)), "kind": [kind] * count, "number": np.arange(count),
            "sequenced": np.ones(count, bool), "start_ns": start, "duration_ns": duration, "exposed_ns": duration,
            "bytes": np.full(count, size),
        }  # fmt: skip
        for name, values in found.items():
            columns.setdefault(name, []).append(values)
    texts = ("group", "members", "kind")
    return {
        name: list(chain.from_iterable(parts)) if name in texts else np.concatenate(parts)
        for name, parts in columns.items()
    }


def _listed(members: range) -> str:
    """The ranks of a group as text, of many the first and the last."""
    if len(members) <= 30:
        return str(list(members))
    return f"[{', '.join(map(str, members[:29]))}, ..., {members[-1]}]"


def _few_rows(rank: int, ranks: int, calls: dict[str, Any], faults: Faults) -> dict[str, list[dict[str, Any]]]:
    heavy = faults.heavy_stage is not None and rank // TENSOR % STAGES == faults.heavy_stage
    compute = COMPUTE_NS * len(calls["number"]) * (3 if heavy else 2) // 2
    exposed = int(calls["duration_ns"].sum())
    span = compute + exposed
    parts = {"gpu_events": 2 * len(calls["number"]), "span_ns": span, "compute_ns": compute,
             "exposed_communication_ns": exposed, "copies_ns": 0, "idle_ns": 0}  # fmt: skip
    causes = {"cpu_late_ns": 0, "launch_latency_ns": 0, "waiting_ns": 0, "unknown_ns": 0}
    about = {"rank": str(rank), "host": f"node{rank // TENSOR:04d}", "gpu": "NVIDIA H100 80GB HBM3",
             "world_size": ranks, "truncated": False, "other_ns": 0, "communication_ns": exposed}  # fmt: skip
    of_step = {name: value // STEPS for name, value in parts.items()}
    return {
        "traces": [about | parts | causes],
        "steps": [
            {"step": step, "name": f"ProfilerStep#{step}", "start_ns": step * span // STEPS,
             "cpu_ns": span // STEPS, **of_step} for step in range(STEPS)
        ],
        "kernels": [{"name": GEMM[0], "class": "compute", "category": "matrix products",
                     "count": len(calls["number"]), "ns": compute}],
        "memory": [{"device": "cuda:0", "allocated_bytes": (70 if rank == faults.full_rank else 60) << 30,
                    "reserved_bytes": 72 << 30, "step": "ProfilerStep#1"}],
    }  # fmt: skip


def time_map(folder: Path, ranks: int, megabytes: float) -> None:
    """Each file alone, then all by two processes."""
    launches = max(100, int(megabytes * 1e6 / BYTES_PER_LAUNCH))
    traces = folder / "traces"
    traces.mkdir()
    for rank in range(ranks):
        write_trace(traces / f"rank{rank}.json.gz", rank, ranks, launches, late_us=8.0 if rank == ranks // 2 else 0.0)
    paths = sorted(traces.iterdir())

    def mapped(path: Path, out: str, *flags: str) -> processes.Run:
        command = [sys.executable, "-c", MAIN, "profile", str(path), "-o", str(folder / out), "--shard", "1/1", *flags]
        return processes.run(command, WITH_BYTECODE)  # a shard is read and not answered from

    mapped(paths[0], "first")
    alone = [mapped(path, f"alone-{path.name}") for path in paths]
    together = mapped(traces, "together", "--jobs", "2")
    half = sum(one.wall_s for one in alone) / 2
    size, packed = launches * BYTES_PER_LAUNCH / 1e6, paths[0].stat().st_size / 1e6
    print(f"{ranks} traces of {size:.0f} MB, {packed:.1f} MB packed")
    print(f"  each alone: {2 * half:.1f} s in all, peak {max(one.peak_mib for one in alone):.1f} MiB")
    print(f"  --jobs 2: {together.wall_s:.1f} s, {together.wall_s / half:.2f} × half of that (at most {MOST_MAP_TIME})")
    alone_cpu_s = sum(one.cpu_s for one in alone)
    print(f"  CPU: {together.cpu_s:.1f} s, {together.cpu_s / alone_cpu_s:.2f} × that of each alone")
    print(f"  peak of its largest process: {together.peak_mib:.1f} MiB (at most {MOST_MAP_MIB:.0f})")


def time_reduce(folder: Path, ranks: int, collectives: int) -> None:
    """The answer of a clean job and of one with every fault, each by a process of its own."""
    from vramwise.utilization.job.answer import answer_of
    from vramwise.utilization.job.folder import JobFolder

    faults = Faults(late_rank=ranks // 2 + 3, slow_group=5, heavy_stage=2, busy_rank=17, full_rank=9)
    for name, planted in (("clean", CLEAN), ("faults", faults)):
        write_tables(folder / name, ranks, collectives, planted)
        taken = processes.run([sys.executable, "-c", MAIN, "profile", str(folder / name), "--json"])
        print(f"{name}: reduce of {ranks:,} ranks × {collectives:,} collectives")
        print(f"  {taken.wall_s:.1f} s (at most {MOST_REDUCE_S:.0f}), {taken.cpu_s:.1f} s of CPU")
        print(f"  peak {taken.peak_mib:.0f} MiB (at most {MOST_REDUCE_MIB:.0f})")
        found = answer_of(JobFolder(folder / name))
        late = [f"{one['rank']} on {one['host']} ({one['collective']})" for one in found["stragglers"]]
        slow = [f"{one['kind']} at {one['gb_s']:.0f} of {one['usual_gb_s']:.0f} GB/s" for one in found["slow_links"]]
        print(f"  late: {', '.join(late) or 'nobody'}; slow: {', '.join(slow) or 'no link'}")
        busy, memory = found["experts"]["busiest_ranks"], found["memory"]
        print(f"  heaviest stage: {found['pipeline']['heaviest_stage']}; busiest: {', '.join(busy) or 'nobody'}")
        spread = [(memory[end]["rank"], memory[end]["allocated_bytes"] >> 30) for end in ("lowest", "highest")]
        print(f"  memory: {', '.join(f'rank {rank} {gib} GiB' for rank, gib in spread)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, default=64, metavar="N", help="ranks of the map, 0 for none")
    parser.add_argument("--trace-mb", type=float, default=50, metavar="MB", help="size of each (%(default)s)")
    parser.add_argument("--ranks", type=int, default=1024, metavar="N", help="ranks of the reduce, 0 for none")
    parser.add_argument("--collectives", type=int, default=20_000, metavar="N", help="of each rank (%(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave what is made in this new folder")
    args = parser.parse_args()
    print(processes.machine())
    with tempfile.TemporaryDirectory() as name:
        folder = args.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        if args.traces:
            time_map(folder, args.traces, args.trace_mb)
        if args.ranks:
            time_reduce(folder, args.ranks, args.collectives)


if __name__ == "__main__":
    main()
