"""Small traces in the forms of other profilers, each with the events of `made_traces.two_steps`."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path

from made_traces import ADD, ALL_REDUCE, GEMM

US = 1000
KERNELS = ((GEMM, 100, 200, 7, 1), (ALL_REDUCE, 150, 250, 20, 2), (ADD, 400, 500, 7, 4))
"""Name, start and end in microseconds, stream, correlation; the copy lies between them."""
COPY = (300, 310, 7, 3, 4096)
LAUNCHES = ((90, 1), (95, 2), (290, 3), (350, 4))
STEPS = ((1, 80, 320), (2, 320, 520))


def nsys(path: Path, *, devices: tuple[int, ...] = (0,), extra: str = "") -> Path:
    """An export of Nsight Systems; each device belongs to a process of its own."""
    base = sqlite3.connect(path)
    base.executescript("""
        CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
        CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
            streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
            nameId INTEGER);
        CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER,
            textId INTEGER);
        INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100 80GB HBM3');
        INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000);
        INSERT INTO StringIds VALUES (9, 'cudaLaunchKernel_v7000'), (10, 'step 2');
    """)
    base.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, name) for i, (name, *_) in enumerate(KERNELS)])
    for device in devices:
        pid = (1000 + device) << 24
        for i, (_, start, end, stream, correlation) in enumerate(KERNELS):
            row = (start * US, end * US, device, 1, stream, correlation, pid, i, i)
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?,?)", row)
        start, end, stream, correlation, size = COPY
        row = (start * US, end * US, device, stream, correlation, pid, size, 1)
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,?,?,?,?,?,?)", row)
        for start, correlation in LAUNCHES:
            row = (start * US, (start + 2) * US, pid + 5, correlation, 9)
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)", row)
        first, second = STEPS
        ranges = ((first, "ProfilerStep#1", None), (second, None, 10))
        for (_, start, end), text, number in ranges:
            row = (start * US, end * US, 59, text, pid + 5, number)
            base.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?)", row)
    base.executescript(extra)
    base.commit()
    base.close()
    return path


def rocpd(path: Path) -> Path:
    """A rocpd database of schema 3, of one process with one GPU."""
    base = sqlite3.connect(path)
    of = "_0000aa11_bb22"
    base.executescript(f"""
        CREATE TABLE "rocpd_string{of}" (id INTEGER PRIMARY KEY, guid TEXT, string TEXT);
        CREATE TABLE "rocpd_info_agent{of}" (id INTEGER PRIMARY KEY, type TEXT, type_index INTEGER, name TEXT,
            product_name TEXT);
        CREATE TABLE "rocpd_info_kernel_symbol{of}" (id INTEGER PRIMARY KEY, kernel_name TEXT, display_name TEXT);
        CREATE TABLE "rocpd_event{of}" (id INTEGER PRIMARY KEY, stack_id INTEGER, correlation_id INTEGER);
        CREATE TABLE "rocpd_kernel_dispatch{of}" (id INTEGER PRIMARY KEY, agent_id INTEGER, kernel_id INTEGER,
            stream_id INTEGER, start BIGINT, "end" BIGINT, event_id INTEGER);
        CREATE TABLE "rocpd_memory_copy{of}" (id INTEGER PRIMARY KEY, start BIGINT, "end" BIGINT, name_id INTEGER,
            dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER, stream_id INTEGER, event_id INTEGER);
        CREATE TABLE "rocpd_region{of}" (id INTEGER PRIMARY KEY, start BIGINT, "end" BIGINT, name_id INTEGER,
            event_id INTEGER);
        CREATE VIEW rocpd_string AS SELECT * FROM "rocpd_string{of}";
        INSERT INTO "rocpd_info_agent{of}" VALUES (1, 'CPU', 0, 'EPYC', ''), 
            (4, 'GPU', 0, 'gfx942', 'AMD Instinct MI300X');
        INSERT INTO "rocpd_string{of}" VALUES (1, '', 'hipLaunchKernel'), (2, '', 'MEMORY_COPY_HOST_TO_DEVICE');
    """)
    for i, (name, start, end, stream, correlation) in enumerate(KERNELS, start=1):
        base.execute(f'INSERT INTO "rocpd_info_kernel_symbol{of}" VALUES (?,?,?)', (i, f"{name}.kd", name))
        base.execute(f'INSERT INTO "rocpd_event{of}" VALUES (?,?,0)', (correlation, correlation))
        row = (i, 4, i, stream, start * US, end * US, correlation)
        base.execute(f'INSERT INTO "rocpd_kernel_dispatch{of}" VALUES (?,?,?,?,?,?,?)', row)
    start, end, stream, correlation, size = COPY
    base.execute(f'INSERT INTO "rocpd_event{of}" VALUES (?,?,0)', (correlation, correlation))
    row = (1, start * US, end * US, 2, 4, 1, size, stream, correlation)
    base.execute(f'INSERT INTO "rocpd_memory_copy{of}" VALUES (?,?,?,?,?,?,?,?,?)', row)
    for start, correlation in LAUNCHES:
        base.execute(f'INSERT INTO "rocpd_event{of}" VALUES (?,?,0)', (100 + correlation, correlation))
        row = (correlation, start * US, (start + 2) * US, 1, 100 + correlation)
        base.execute(f'INSERT INTO "rocpd_region{of}" VALUES (?,?,?,?,?)', row)
    base.commit()
    base.close()
    return path


def rocprof_json(*, processes: int = 1) -> bytes:
    """What rocprofv3 writes with --output-format json; GPU 4 of the machine is the first that HIP sees."""
    names = ["", "hipMalloc", "hipLaunchKernel"]
    ranges = [{"key": 70 + number, "value": f"ProfilerStep#{number}"} for number, *_ in STEPS]

    def record(kind: int, operation: int, start: int, end: int, correlation: int, **more: object) -> dict[str, object]:
        return {"size": 64, "kind": kind, "operation": operation, "thread_id": 9,
                "correlation_id": {"internal": correlation, "external": 0}, "start_timestamp": start * US,
                "end_timestamp": end * US, **more}  # fmt: skip

    agent = {"handle": 400}
    start, end, stream, correlation, size = COPY
    process = {
        "metadata": {"pid": 77, "init_time": 1, "fini_time": 2, "command": ["python", "train.py"]},
        "agents": [{"id": {"handle": 100}, "type": 1, "node_id": 0, "name": "EPYC", "product_name": "EPYC"},
                   {"id": agent, "type": 2, "node_id": 4, "logical_node_type_id": 0, "name": "gfx942",
                    "product_name": "AMD Instinct MI300X"}],
        "counters": [],
        "strings": {"buffer_records": [{"kind": "NONE", "operations": []},
                                       {"kind": "HIP_RUNTIME_API", "operations": names},
                                       {"kind": "MEMORY_COPY", "operations": ["", "MEMORY_COPY_HOST_TO_DEVICE"]},
                                       {"kind": "KERNEL_DISPATCH", "operations": []},
                                       {"kind": "MARKER_CORE_API", "operations": ["", "roctxRangePushA"]}],
                    "marker_api": ranges},
        "kernel_symbols": [{"kernel_id": 0, "kernel_name": ""}] + [
            {"kernel_id": i, "kernel_name": f"{name}.kd", "formatted_kernel_name": name}
            for i, (name, *_) in enumerate(KERNELS, start=1)],
        "callback_records": {"counter_collection": [{"records": []}]},
        "buffer_records": {
            "kernel_dispatch": [
                record(3, 2, begin, stop, launched, stream_id={"handle": lane},
                       dispatch_info={"agent_id": agent, "queue_id": {"handle": 1}, "kernel_id": i, "dispatch_id": i})
                for i, (_, begin, stop, lane, launched) in enumerate(KERNELS, start=1)],
            "hip_api": [record(1, 2, at, at + 2, launched) for at, launched in LAUNCHES],
            "marker_api": [record(4, 1, begin, stop, 70 + number) for number, begin, stop in STEPS],
            "memory_copy": [record(2, 1, start, end, correlation, src_agent_id={"handle": 100}, dst_agent_id=agent,
                                   bytes=size, stream_id={"handle": stream})],
            "scratch_memory": [],
        },
    }  # fmt: skip
    return json.dumps({"rocprofiler-sdk-tool": [process] * processes}, indent=1).encode()


def rocprof_csv(path: Path) -> Path:
    """What rocprofv3 writes with --output-format csv, `path` and its like beside it."""
    start, end, stream, correlation, _ = COPY
    api = ["Domain", "Function", "Process_Id", "Thread_Id", "Correlation_Id", "Start_Timestamp", "End_Timestamp"]
    tables = {
        "kernel_trace": [
            ["Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name",
             "Correlation_Id", "Start_Timestamp", "End_Timestamp", "LDS_Block_Size"],
            *(["KERNEL_DISPATCH", "Agent 4", 1, lane, 9, i, i, name, launched, begin * US, stop * US, 0]
              for i, (name, begin, stop, lane, launched) in enumerate(KERNELS, start=1))],
        "memory_copy_trace": [
            ["Kind", "Direction", "Stream_Id", "Source_Agent_Id", "Destination_Agent_Id", "Correlation_Id",
             "Start_Timestamp", "End_Timestamp"],
            ["MEMORY_COPY", "MEMORY_COPY_HOST_TO_DEVICE", stream, "Agent 0", "Agent 4", correlation, start * US,
             end * US]],
        "hip_api_trace": [api, *(["HIP_RUNTIME_API", "hipLaunchKernel", 9, 9, launched, at * US, (at + 2) * US]
                                 for at, launched in LAUNCHES)],
        "marker_api_trace": [api, *(["MARKER_CORE_API", f"ProfilerStep#{number}", 9, 9, 70, begin * US, stop * US]
                                    for number, begin, stop in STEPS)],
        "agent_info": [["Node_Id", "Agent_Type", "Name", "Product_Name"], [0, "CPU", "EPYC", "EPYC"],
                       [4, "GPU", "gfx942", "AMD Instinct MI300X"]],
    }  # fmt: skip
    for name, lines in tables.items():
        with open(path.with_name(path.name.replace("kernel_trace", name)), "w", newline="", encoding="utf-8") as file:
            csv.writer(file, quoting=csv.QUOTE_NONNUMERIC).writerows(lines)
    return path


def number(value: int) -> bytes:
    """A varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(place: int, value: int | bytes | str) -> bytes:
    """One field of a message."""
    if isinstance(value, int):
        return number(place << 3) + number(value)
    raw = value.encode() if isinstance(value, str) else value
    return number(place << 3 | 2) + number(len(raw)) + raw


def xspace() -> bytes:
    """An XSpace of one GPU and its host, times as JAX writes them: picoseconds behind the line's start."""
    stats = {1: "correlation_id", 2: "step_num", 3: "memcpy_details"}
    names = {i: name for i, (name, *_) in enumerate(KERNELS, start=1)} | {
        4: "MemcpyH2D",
        5: "cuLaunchKernel",
        6: "train",
    }
    kept = b"".join(field(4, field(1, key) + field(2, field(1, key) + field(2, name))) for key, name in names.items())
    kept += b"".join(field(5, field(1, key) + field(2, field(1, key) + field(2, name))) for key, name in stats.items())

    def event(name: int, start: int, end: int, **stat: int) -> bytes:
        said = b"".join(field(4, field(1, int(key[1:])) + field(3, value)) for key, value in stat.items())
        times = field(2, (start - 50) * 1_000_000) + field(3, (end - start) * 1_000_000)
        return field(4, field(1, name) + times + said)

    def line(place: int, title: str, events: bytes) -> bytes:
        return field(3, field(1, place) + field(2, title) + field(3, 50 * US) + events)

    streams = b"".join(
        line(stream, f"Stream #{stream}(Compute)", event(i, start, end, s1=correlation))
        for i, (_, start, end, stream, correlation) in enumerate(KERNELS, start=1)
    )
    streams += line(7, "Stream #7(MemcpyH2D)", event(4, COPY[0], COPY[1], s1=COPY[3], s3=1))
    derived = line(99, "XLA Modules", event(1, 100, 500))
    launches = b"".join(event(5, start, start + 2, s1=correlation) for start, correlation in LAUNCHES)
    steps = b"".join(event(6, start, end, s2=which) for which, start, end in STEPS)
    device = field(1, 1) + field(2, "/device:GPU:0") + streams + derived + kept
    host = field(1, 2) + field(2, "/host:CPU") + line(1, "python", launches + steps) + kept
    return field(1, host) + field(1, device)


def chakra(*, timed: bool = True) -> bytes:
    """A Chakra trace; without times as simulators take it."""

    def node(place: int, name: str, kind: int, start: int, end: int, **attributes: bytes) -> bytes:
        said = b"".join(field(10, field(1, key) + value) for key, value in attributes.items())
        times = field(6, start) + field(7, end - start) if timed else b""
        message = field(1, place) + field(2, name) + field(3, kind) + times + said
        return number(len(message)) + message

    (gemm, *g), (reduce, *r), (add, *a) = KERNELS
    metadata = field(1, "0.0.4")
    on_gpu, on_cpu = field(27, 0), field(27, 1)
    return (
        number(len(metadata)) + metadata
        + node(1, "aten::mm", 4, 80, 98, is_cpu_op=on_cpu)
        + node(2, gemm, 4, g[0], g[1], is_cpu_op=on_gpu, stream=field(9, 7))
        + node(3, reduce, 7, r[0], r[1], is_cpu_op=on_gpu, comm_type=field(9, 0), comm_size=field(9, 2000))
        + node(4, "weights", 2, COPY[0], COPY[1])
        + node(5, add, 4, a[0], a[1], is_cpu_op=on_gpu, stream=field(9, 7))
    )  # fmt: skip
