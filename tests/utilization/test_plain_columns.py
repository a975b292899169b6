"""A trace's figures without NumPy and msgspec, as in a browser: the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_traces import document, launch, on_gpu, step, text, two_steps

from vramwise.utilization.profiler import columns, intervals, plain_columns
from vramwise.utilization.profiler.collect import read_trace
from vramwise.utilization.profiler.files import trace_files
from vramwise.utilization.profiler.hta import kept_events

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "small.pt.trace.json"
FIGURES = """
import json, sys
for name in sys.argv[2:]:
    sys.modules[name] = None
from vramwise.utilization.profiler.analysis import analyse, critical_path_of
from vramwise.utilization.profiler.collect import read_trace
from vramwise.utilization.profiler.files import trace_files
from vramwise.utilization.profiler.hta_tables import hta_tables
from vramwise.utilization.profiler.picture import picture
read = [read_trace(one) for one in trace_files([sys.argv[1]])]
report = analyse(read)
print(json.dumps([report, critical_path_of(read), [hta_tables(one) for one in read], picture(read, report)]))
"""


def memory(at: float, change: int, allocated: int | None) -> dict[str, object]:
    stated = {} if allocated is None else {"Total Allocated": allocated, "Total Reserved": 2 * allocated}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": at,
            "args": {"Device Type": 1, "Device Id": 0, "Bytes": change, **stated}}  # fmt: skip


ROWS = [on_gpu("sm90_xmma_gemm", 10.5 + 7 * i, 6.25, i, 7 + i % 3, **{"blocks per SM": i / 9,
        "est. achieved occupancy %": 10 + i}) for i in range(1, 30)]  # fmt: skip
RING = {"Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "Group size": 2,
        "dtype": "BFloat16", "Process Group Name": "0", "Seq": 4}  # fmt: skip
MADE = {
    "two steps": document(two_steps()),
    "fractions, occupancy and a collective": document(
        [*ROWS, *(launch(7.1 * i, i) for i in range(1, 25)), step(1, 0, 90), step(2, 90, 120),
         on_gpu("ncclDevKernel_AllReduce_Sum_bf16", 40, 33.125, 99, 20, **RING)]
    ),
    "memory": document([*two_steps(), *(memory(3 * i, 512 * (i % 5 - 1), 512 * (i % 7)) for i in range(2000))]),
    "memory by changes": document([*two_steps(), *(memory(3 * i, 512, None) for i in range(2000))]),
    "no events of a GPU": document([launch(3, 1)]),
}  # fmt: skip


def figures(path: Path, *without: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", FIGURES, str(path), *without], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


@pytest.mark.parametrize("name", ["the example", *MADE])
def test_without_numpy_the_figures_are_the_same_bytes(tmp_path: Path, name: str) -> None:
    path = EXAMPLE
    if name in MADE:
        path = tmp_path / "rank_0.json"
        path.write_bytes(text(MADE[name]))
    with_numpy = figures(path)
    assert json.loads(with_numpy)[0]["ranks"]
    assert figures(path, "numpy", "msgspec") == with_numpy


LOADED = """
import sys
from vramwise.cli.main import main
assert main(["profile", *sys.argv[1:]]) == 0
print("numpy" in sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(("events", "traces", "loaded"), [(40, 1, "False"), (21_000, 1, "True"), (40, 2, "True")])
def test_numpy_is_not_loaded_for_one_small_trace(tmp_path: Path, events: int, traces: int, loaded: str) -> None:
    for rank in range(traces):
        rows = [row for i in range(events) for row in (launch(20 * i, i + 1), on_gpu("gemm", 20 * i + 5, 9, i + 1))]
        (tmp_path / f"rank_{rank}.json").write_bytes(text(document(rows, rank)))
    command = [sys.executable, "-c", LOADED, *map(str, sorted(tmp_path.iterdir())), "--critical-path", "--memory"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr.splitlines()[-1] == loaded


def test_edges_are_numpys() -> None:
    for module in (np, plain_columns):
        found = module.array([3, 1, 2, 2])
        assert module.argsort(found, kind="stable").tolist() == [1, 2, 3, 0]
        assert module.searchsorted(module.sort(found), [2, 9, 0]).tolist() == [1, 4, 0]
        assert module.maximum.reduceat(found, module.array([0, 2])).tolist() == [3, 2]
        assert module.bincount(found, minlength=6).tolist() == [0, 1, 2, 1, 0, 0]
        assert module.clip(found, 2, module.array([9, 9, 9, 1])).tolist() == [3, 2, 2, 1]
        assert (-(-found // 2)).tolist() == [2, 1, 1, 1]
        assert module.clip(module.array([-0.0, 0.5, 7.0]), 0, 1).tolist() == [0, 0.5, 1]
        assert module.searchsorted(module.array([1, 1, 2]), [3, 1, 0, 2]).tolist() == [3, 0, 0, 2]
        assert module.searchsorted(module.array(range(90)), [7]).tolist() == [7]
        at = module.array([0.0, 1.0, 2.5, 9.0])
        assert module.interp(at, module.array([1.0, 3.0]), module.array([10.0, 30.0])).tolist() == [10, 10, 25, 30]


@pytest.mark.parametrize("module", [np, plain_columns])
def test_a_union_joins_what_touches_and_takes_negative_lengths(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    monkeypatch.setattr(columns, "np", module, raising=False)
    start, end = module.array([5, 0, 2, 9, 9, 30]), module.array([9, 3, 3, 8, 12, 31])
    starts, ends = intervals.union(start, end)
    assert (starts.tolist(), ends.tolist()) == ([0, 5, 30], [3, 12, 31])
    assert intervals.union(start[:0], end[:0])[0].tolist() == []


@pytest.mark.parametrize("module", [np, plain_columns])
def test_calls_round_as_their_step_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: Any) -> None:
    """HTA leaves out what was launched in the last step, both rounded up: 89.001 µs and 89.2 µs are one moment."""
    monkeypatch.setattr(columns, "np", module, raising=False)
    for at in (88.0, 88.001, 89.0, 89.001):
        rows = [launch(at, 1), on_gpu("gemm", 95.5, 3, 1), on_gpu("gemm", 20.5, 9, 2), launch(10.5, 2)]
        (tmp_path / "one.json").write_bytes(text(document([*rows, step(1, 0, 89), step(2, 89.2, 40)])))
        recording = read_trace(trace_files([str(tmp_path / "one.json")])[0])
        assert len(kept_events(recording, rounding=True)) == (2 if at <= 89 else 1)


def test_intervals_are_joined_alike_by_both() -> None:
    rng = np.random.default_rng(3)
    for count, longest in ((1, 5), (40, 1), (40, 9), (200, 3), (200, 0)):
        start = rng.integers(0, 400, count)
        end = start + rng.integers(0, longest + 1, count)
        covered = np.zeros(900, dtype=bool)
        for one, other in zip(start * 2, end * 2, strict=True):
            covered[one : other + 1] = True
        for module in (np, plain_columns):
            starts, ends = intervals.union(module.array(start.tolist()), module.array(end.tolist()))
            again = np.zeros(900, dtype=bool)
            for one, other in zip(starts.tolist(), ends.tolist(), strict=True):
                again[2 * one : 2 * other + 1] = True
            assert again.tolist() == covered.tolist()
            assert all(a < b for a, b in zip(ends.tolist()[:-1], starts.tolist()[1:], strict=True))
