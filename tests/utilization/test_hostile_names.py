"""Traces whose names, texts, steps and devices have no end: bounded memory, and the answer says what was cut."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from made_traces import document, launch, on_gpu

from vramwise.cli.main import main
from vramwise.cli.screens.paint import plain
from vramwise.cli.screens.profile import profile_lines
from vramwise.errors import SourceError
from vramwise.units import KIB, MIB
from vramwise.utilization.profiler import collect, growing
from vramwise.utilization.profiler.analysis import analyse
from vramwise.utilization.profiler.collect import Collector, read_trace
from vramwise.utilization.profiler.decode import plain_decoder
from vramwise.utilization.profiler.stream import EventStream
from vramwise.utilization.profiler.trace import TraceFile

BATCH = 500


def recording_of(events):
    text = json.dumps({"traceEvents": events}).encode()
    return read_trace(TraceFile("t.json", len(text), lambda: iter([text])))


def test_names_without_end_take_bounded_memory_and_no_time_is_lost():
    collector = Collector()
    tracemalloc.start()
    try:
        for batch in range(16):
            names = (f"{batch} {place} {'x' * 10_000}" for place in range(BATCH))
            events = [on_gpu(name, batch * BATCH + place, 1, 0) for place, name in enumerate(names)]
            collector.take(plain_decoder(json.dumps(events).encode()))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < growing.MOST_NAME_BYTES + 8 * MIB  # 80 MB of names were there
    recording = collector.recording(EventStream("t.json", iter([])))
    assert len(recording.gpu) == 16 * BATCH
    assert recording.left_out["names beyond 32 MiB"] == 16 * BATCH - (len(recording.names) - 1)


@pytest.mark.parametrize("kind", ["kernels", "calls", "calls one by one"])
def test_the_answer_says_how_many_names_were_left_out(kind, monkeypatch):
    monkeypatch.setattr(growing, "MOST_NAME_BYTES", MIB)
    named = [f"gemm {place}" if kind == "kernels" else "gemm" for place in range(9_000)]
    events = [on_gpu(name, 10 * place, 5, place) for place, name in enumerate(named)]
    if kind != "kernels":
        events += [launch(10 * place, place) | {"name": f"call {place}"} for place in range(9_000)]
    if kind == "calls one by one":
        events[-1]["args"]["correlation"] = "text"  # an odd one: every call of its batch is taken by itself
    answer = analyse([recording_of(events)])
    figures = answer["ranks"]["0"]
    (left_out,) = figures["window"]["left_out"].values()
    assert 2_000 < left_out - (9_000 if kind != "kernels" else 0) < 7_000  # that of the kernels comes after the calls'
    assert figures["all_events"]["compute_us"] == 45_000
    shown = " ".join(plain(line) for line in profile_lines(answer, steps=False))
    assert f"{left_out:,} names beyond 1 MiB left out" in " ".join(shown.split())


def test_a_job_says_whose_names_were_left_out(tmp_path, monkeypatch, capsys):
    pytest.importorskip("duckdb")
    monkeypatch.setattr(growing, "MOST_NAME_BYTES", 64 * KIB)
    for rank in range(2):
        events = [on_gpu(f"gemm {place if rank else 0}", 10 * place, 5, place) for place in range(900)]
        (tmp_path / f"rank_{rank}.json").write_text(json.dumps(document(events, rank=rank)))
    assert main(["profile", str(tmp_path), "-o", str(tmp_path / "tables"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["names_cut"] == ["1"]
    assert main(["profile", str(tmp_path / "tables")]) == 0
    assert "more names of kernels than are kept in the trace of rank 1" in " ".join(capsys.readouterr().out.split())


def test_a_name_of_megabytes_is_cut():
    long = "gemm" + "x" * 1_000_000
    answer = analyse([recording_of([on_gpu(long + end, 10 * at, 5, at) for at, end in enumerate("aabc")])])
    figures = answer["ranks"]["0"]
    assert figures["window"]["left_out"] == {"ends of names beyond 16,384 characters": 4}
    assert [(one["count"], len(one["name"])) for one in figures["kernels"]] == [(4, growing.LONGEST_NAME)]


def test_texts_of_collectives_and_of_steps_are_bounded_too(monkeypatch):
    monkeypatch.setattr(growing, "MOST_NAME_BYTES", MIB)
    stated = {"Collective name": "allreduce", "In msg nelems": 8}
    events = []
    for place in range(3_000):
        events.append(on_gpu("ncclDevKernel_AllReduce", 10 * place, 5, place))
        events[-1]["args"] |= {**stated, "Process Group Name": f"{place} {'x' * 1_000}"}
    recording = recording_of(events)
    assert sum(len(one.group) for one in recording.collectives.facts) < MIB
    assert recording.left_out["names beyond 1 MiB"] > 1_000


def test_steps_without_end_are_refused(monkeypatch):
    monkeypatch.setattr(collect, "MOST_KEPT", 100 * collect.KEPT_OF_A_LIKE)
    collector = Collector()
    mark = {"ph": "X", "cat": "user_annotation", "ts": 1, "dur": 1, "pid": 1, "tid": 1}
    collector.take(plain_decoder(json.dumps([{**mark, "name": f"ProfilerStep#{n}"} for n in range(101)]).encode()))
    with pytest.raises(SourceError, match="profile fewer steps"):
        collector.take([])


def test_devices_without_end_have_no_timeline_each():
    event = {"ph": "i", "name": "[memory]", "ts": 1, "pid": 1, "tid": 1}
    args = {"Device Type": 1, "Bytes": 512, "Total Allocated": 512, "Total Reserved": 512}
    recording = recording_of([{**event, "args": {**args, "Device Id": n}} for n in range(300)])
    assert len(recording.memory) == collect.MOST_DEVICES
    assert recording.left_out == {"memory events of devices beyond 256": 300 - collect.MOST_DEVICES}


def test_keys_behind_the_events_that_would_take_gigabytes_are_refused():
    lists = b"[]," * 500_000
    pieces = [b'{"traceEvents": [], "a": [', *[lists] * 15, b"[]]}"]
    with pytest.raises(SourceError, match="of more than 16 MiB: not a profiler trace"):
        read_trace(TraceFile("t.json", sum(map(len, pieces)), lambda: iter(pieces)))
