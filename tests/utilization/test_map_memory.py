"""What the map of a job takes: a process stays below 120 MiB, pyarrow is not loaded, and the tables are Parquet."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_traces import ADD, ALL_REDUCE, GEMM

from vramwise.utilization.job.parquet import Named, ParquetFile
from vramwise.utilization.job.schema import TEXT, WHOLE, YES_NO
from vramwise.utilization.profiler.analysis import analyse
from vramwise.utilization.profiler.recording import (
    Collectives,
    CpuCalls,
    GpuEvents,
    Likes,
    ProductCalls,
    Recording,
    StepMark,
)

EVENTS = 240_000
"""Kernels and as many launches, with little else: what a trace of some 350 MB leaves."""
FIGURED = 150_000
MOST_MIB = 120
MAP = """
import re, sys
from vramwise.cli.main import main
code = main(["profile", sys.argv[1], "-o", sys.argv[2], "--shard", "1/1"])
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())  # of this program alone, not of its parent
print(int(peak[1]) // 1024, sorted({"pyarrow", "pandas"} & set(sys.modules)))
sys.exit(code)
"""


def write_trace(path: Path) -> None:
    """Kernels on two streams, every tenth a collective, each launched by a call."""
    ring = {"Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "Group size": 8,
            "dtype": "BFloat16", "Process Group Name": "0", "Process Group Ranks": str(list(range(8)))}  # fmt: skip
    told = json.dumps(ring)[1:-1]
    with gzip.open(path, "wt", compresslevel=1, encoding="utf-8") as file:
        file.write('{"distributedInfo": {"rank": 3, "world_size": 8}, "traceEvents": [\n')
        for i in range(EVENTS):
            at, collective = 1_000_000 + 20 * i, i % 10 == 9
            name, stream, said = (
                (ALL_REDUCE, 20, f', {told}, "Seq": {i}') if collective else ((GEMM, ADD)[i % 2], 7, "")
            )
            file.write(
                f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": {at}.125, "dur": 5.250,'
                f' "args": {{"correlation": {i + 1}}}}},\n'
                f'{{"ph": "X", "cat": "kernel", "name": "{name}", "ts": {at + 9 + i % 7}.500, "dur": 15.125, "args":'
                f' {{"device": 0, "stream": {stream}, "correlation": {i + 1}, "External id": {i}{said}}}}}'
                f"{',' if i < EVENTS - 1 else ']}'}\n"
            )


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says a process's peak there")
def test_a_process_of_the_map_stays_below_120_mib(tmp_path: Path) -> None:
    write_trace(tmp_path / "rank_3.json.gz")
    command = [sys.executable, "-c", MAP, str(tmp_path / "rank_3.json.gz"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    peak, loaded = done.stdout.splitlines()[-1].split(maxsplit=1)
    assert int(peak) < MOST_MIB
    assert loaded == "[]"
    pq = pytest.importorskip("pyarrow.parquet")
    rows = {file.stem: pq.read_table(file).num_rows for file in (tmp_path / "out" / "parts").glob("*/*.parquet")}
    assert (rows["events"], rows["cpu_calls"], rows["collectives"]) == (EVENTS, EVENTS, EVENTS // 10)


WIDE = st.integers(-(2**62), 2**62)
NUMBERS = st.one_of(WIDE, st.integers(0, 99), st.just(7))
WORDS = st.text(max_size=5)


@pytest.mark.parametrize("rounds", [True, False])
def test_the_figures_of_one_trace_take_few_bytes_an_event(rounds: bool) -> None:
    """A trace of 500 MB, which has 340,000 kernels as this one, is answered in 95 MiB."""
    place = np.arange(FIGURED)
    names = (GEMM, ADD, ALL_REDUCE)
    likes = Likes(np.zeros(3, int), np.arange(3), np.array([7, 7, 20]), np.zeros(3, int), np.full(3, 4.5), np.ones(3))
    like = np.where(place % 10 == 9, 2, place % 2).astype(np.int32)
    start, lasts = 20_000 * place + 500 * rounds, np.full(FIGURED, 15_000)
    number = place.astype(np.int32)
    steps = tuple(StepMark(f"ProfilerStep#{i}", 5_000 * FIGURED * i, 5_000 * FIGURED, False) for i in range(4))
    recording = Recording(
        "t.json", {}, FIGURED, False, names, GpuEvents(likes, start, lasts, number, number, like),
        CpuCalls(start - 300, lasts // 3, like, number), ProductCalls(number, place), steps,
        Collectives((), *[place[:0]] * 3), (), not rounds, {},
    )  # fmt: skip
    tracemalloc.start()
    try:
        figures = analyse([recording])["ranks"]["0"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert figures["all_events"]["gpu_events"] == FIGURED
    assert peak / FIGURED < 160


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(NUMBERS, st.none() | NUMBERS, st.none() | WORDS, st.booleans()), max_size=300),
                max_size=3))  # fmt: skip
def test_tables_are_read_back_by_others(groups):
    """By pyarrow."""
    file = ParquetFile({"a": WHOLE, "b": WHOLE, "c": TEXT, "d": YES_NO, "e": TEXT, "f": WHOLE})
    expected = []
    for rows in groups:
        columns = [[row[place] for row in rows] for place in range(4)]
        turns = np.array([place % 3 for place in range(len(rows))], dtype=np.int64)
        file.add({"a": np.array(columns[0], dtype=np.int64), "b": columns[1], "c": columns[2], "d": columns[3],
                  "e": Named(turns, ["x", "y", "é"])})  # fmt: skip
        expected += [(*row, "xyé"[place % 3], None) for place, row in enumerate(rows)]
    content = file.content()
    pq = pytest.importorskip("pyarrow.parquet")
    assert [tuple(row.values()) for row in pq.read_table(io.BytesIO(content)).to_pylist()] == expected


def test_tables_are_read_back_by_duckdb(tmp_path: Path) -> None:
    """Which reads them for every answer."""
    duckdb = pytest.importorskip("duckdb")
    file = ParquetFile({"number": WHOLE, "name": TEXT, "holds": YES_NO, "absent": WHOLE})
    numbers = np.cumsum(np.random.default_rng(3).integers(-(2**40), 2**40, 70_001))
    for part in (numbers[:65_536], numbers[65_536:]):
        names = [None if one % 5 == 0 else str(one % 300) for one in part.tolist()]
        file.add({"number": part, "name": names, "holds": (part % 2 == 0).tolist()})
    path = tmp_path / "a.parquet"
    path.write_bytes(file.content())
    rows = duckdb.sql(f"SELECT * FROM read_parquet('{path}')").fetchall()
    assert rows == [(n, None if n % 5 == 0 else str(n % 300), n % 2 == 0, None) for n in numbers.tolist()]
    path.write_bytes(ParquetFile({"number": WHOLE}).content())
    assert duckdb.sql(f"SELECT count(*) FROM read_parquet('{path}')").fetchall() == [(0,)]
