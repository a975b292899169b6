"""Steps whose critical path is known by hand."""

from __future__ import annotations

import json

import pytest
from made_jobs import job
from made_traces import ADD, ALL_REDUCE, GEMM, document, launch, on_gpu, step, text

from vramwise.cli.main import main
from vramwise.utilization.profiler.analysis import critical_path_of
from vramwise.utilization.profiler.collect import read_trace
from vramwise.utilization.profiler.files import trace_files

SAID = {"Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "Group size": 2, "dtype": "Float",
        "Process Group Name": "0", "Seq": 1}  # fmt: skip


def path_of(tmp_path, *ranks, which=""):
    for number, events in enumerate(ranks):
        (tmp_path / f"rank{number}.json").write_bytes(text(document(events, rank=number)))
    return critical_path_of([read_trace(file) for file in trace_files([str(tmp_path)])], which)


def saves(path, part):
    (row,) = [one for one in path["parts"] if one["what"] == part]
    return row["saves_at_most_us"]


def launches(*starts):
    return [launch(start, number) for number, start in enumerate(starts, start=1)]


def test_a_hidden_collective_saves_nothing(tmp_path):
    """All-reduce 200-300 runs under the second product 200-400; the optimizer follows at 400."""
    path = path_of(tmp_path, [
        step(1, 0, 50), *launches(10, 15, 20, 25),
        on_gpu(GEMM, 100, 100, 1), on_gpu(GEMM, 200, 200, 2), on_gpu(ALL_REDUCE, 200, 100, 3, stream=20, **SAID),
        on_gpu(ADD, 400, 50, 4),
    ])  # fmt: skip
    assert path["step"] == "ProfilerStep#1"
    assert path["length_us"] == 450
    assert saves(path, "communication") == 0
    rows = {one["what"]: one for one in path["kernels"]}
    assert rows[GEMM]["on_path_us"] == 300
    assert rows[GEMM]["twice_as_fast_saves_us"] == 150
    assert ALL_REDUCE not in rows


def test_an_exposed_collective_saves_its_exposed_part(tmp_path):
    """All-reduce 200-400 beside a product 200-300; the optimizer waits for both: 100 of the 200 are exposed."""
    path = path_of(tmp_path, [
        step(1, 0, 50), *launches(10, 15, 20, 25),
        on_gpu(GEMM, 100, 100, 1), on_gpu(ALL_REDUCE, 200, 200, 2, stream=20, **SAID), on_gpu(GEMM, 200, 100, 3),
        on_gpu(ADD, 400, 50, 4),
    ])  # fmt: skip
    assert path["length_us"] == 450
    assert saves(path, "communication") == 100


def test_a_launch_bound_step_gains_from_the_cpu_alone(tmp_path):
    """Kernels of 5 every 100: a faster GPU saves the last one only, a faster CPU nearly all."""
    times = [100, 200, 300, 400]
    kernels = [on_gpu(ADD, start + 6, 5, number) for number, start in enumerate(times, start=1)]
    path = path_of(tmp_path, [step(1, 0, 420), *launches(*times), *kernels])
    assert path["length_us"] == 411
    assert saves(path, "compute") == 5
    assert saves(path, "CPU") == 411 - 6 - 4 * 5  # the first launch, then kernel after kernel
    assert saves(path, "launch latency") == 6


def test_the_path_crosses_to_the_rank_that_arrives_last(tmp_path):
    """Rank 1 computes 300, rank 0 100; the all-reduce takes 50 from the last arrival. Its clock is 7 s ahead."""

    def rank(product, ahead):
        reduce = on_gpu(ALL_REDUCE, ahead + 100 + product, 350 - product, 2, stream=20, **SAID)
        return [step(1, ahead, 100), launch(ahead + 90, 1), launch(ahead + 92, 2), launch(ahead + 94, 3),
                on_gpu(GEMM, ahead + 100, product, 1), reduce, on_gpu(ADD, ahead + 450, 20, 3)]  # fmt: skip

    path = path_of(tmp_path, rank(100, 0), rank(300, 7_000_000))
    assert path["matched_collectives"] == 1
    assert path["length_us"] == 470
    assert saves(path, "communication") == 50
    assert saves(path, "compute") == 470 - 92 - 10 - 50  # the second launch, latency and transfer are left
    assert path["ranks"]["1"] > 300


def test_the_path_crosses_within_a_group_of_few_ranks(tmp_path):
    """Two groups of two; clocks differ by seconds. Rank 1 is late: rank 0 waits for it, the other group does not."""
    traces = job(4, steps=1, group_size=2, late={1: 500})
    for number, trace in enumerate(traces):
        (tmp_path / f"rank{number}.json").write_bytes(text(trace))
    path = critical_path_of([read_trace(file) for file in trace_files([str(tmp_path)])])
    assert path["matched_collectives"] == 2
    assert saves(path, "communication") == 50  # the transfer alone, none of the waiting
    assert path["length_us"] == 10_000
    assert path["ranks"]["1"] > 4500


def test_a_call_that_synchronizes_waits_for_the_gpu(tmp_path):
    """The CPU reads a value after the first kernel, then launches the second: the kernel is on the path."""
    wait = launch(20, 9, duration=190) | {"name": "cudaStreamSynchronize"}
    events = [step(1, 0, 300), launch(10, 1), wait, launch(220, 2), on_gpu(GEMM, 100, 100, 1), on_gpu(ADD, 230, 10, 2)]
    path = path_of(tmp_path, events)
    assert path["length_us"] == 240
    assert {one["what"]: one["on_path_us"] for one in path["kernels"]} == {GEMM: 100, ADD: 10}
    assert saves(path, "compute") == pytest.approx(110)


def test_the_command_says_it(tmp_path, capsys):
    path = tmp_path / "a.json"
    path.write_bytes(text(document([step(3, 0, 50), launch(10, 1), on_gpu(GEMM, 100, 100, 1)])))
    assert main(["profile", str(path), "--critical-path"]) == 0
    assert "critical path" in capsys.readouterr().out
    assert main(["profile", str(path), "--critical-path=3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["critical_path"]["length_us"] == 200
    assert main(["profile", str(path), "--critical-path=9"]) == 2
    assert "ProfilerStep#3" in capsys.readouterr().err
    assert main(["profile", str(path), "--json"]) == 0
    assert "critical_path" not in json.loads(capsys.readouterr().out)


def test_a_path_through_calls_of_two_threads_has_no_hole(tmp_path):
    calls = [launch(10, 1), launch(15, 2, duration=60), launch(20, 3), launch(100, 4)]
    path = path_of(tmp_path, [step(1, 0, 200), *calls, on_gpu(GEMM, 110, 20, 4), on_gpu(ADD, 30, 5, 3)])
    assert path["length_us"] == 130
    assert sum(one["on_path_us"] for one in path["parts"]) + path["waiting_us"] == pytest.approx(130)
