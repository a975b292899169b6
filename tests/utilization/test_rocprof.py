"""What rocprof writes as JSON and as tables: older columns, what lies beside, and files that are none of it."""

from __future__ import annotations

import gzip
import json
import os

import made_others
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_traces import GEMM

from vramwise.cli.main import main
from vramwise.errors import SourceError
from vramwise.utilization.profiler.analysis import analyse
from vramwise.utilization.profiler.collect import read_trace
from vramwise.utilization.profiler.files import trace_files
from vramwise.utilization.profiler.readers import json_walk, rocprof_csv, rocprof_json
from vramwise.utilization.profiler.readers.rows import RowStream

OLD = '"Kind","Agent_Id","Queue_Id","Thread_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
FIRST = '"Index","KernelName","gpu-id","queue-id","DispatchNs","BeginNs","EndNs","CompleteNs","DurationNs"\n'


def read(path, **options):
    (file,) = trace_files([str(path)])
    return read_trace(file, **options)


def refusal(path) -> str:
    with pytest.raises(SourceError) as error:
        read(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_columns_of_older_releases(tmp_path):
    """Before streams had numbers and agents a word before theirs; and rocprof's own table of ROCm 5."""
    path = tmp_path / "9_kernel_trace.csv"
    path.write_text(OLD + f'"KERNEL_DISPATCH",8,2,99,"{GEMM}",15,1000,1500\n')
    recording = read(path)
    assert (recording.gpu.device.tolist(), recording.gpu.stream.tolist()) == ([8], [2])
    assert (recording.gpu.start.tolist(), recording.gpu.duration.tolist()) == ([1000], [500])
    path = tmp_path / "results.csv"
    path.write_text(FIRST + '0,"void f(int) [clone .kd]",2,1,100,200,350,360,150\n')
    recording = read(path)
    assert recording.names == ("void f(int)",)
    assert (recording.gpu.device.tolist(), recording.gpu.duration.tolist()) == ([2], [150])


def test_json_may_be_packed_and_a_run_is_read_once(tmp_path, capsys):
    made_others.rocprof_csv(tmp_path / "7_kernel_trace.csv")
    (tmp_path / "7_results.json").write_bytes(made_others.rocprof_json())
    files = trace_files([str(tmp_path)])
    assert [file.name.rsplit("/", 1)[-1] for file in files] == ["7_results.json"]
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(made_others.rocprof_json()))
    assert len(read(packed).gpu) == 4
    assert main(["profile", str(packed)]) == 0
    assert "AMD Instinct MI300X" in capsys.readouterr().out


def test_cut_off_files_are_read_as_far_as_they_go(tmp_path):
    path = tmp_path / "a_results.json"
    whole = made_others.rocprof_json()
    path.write_bytes(whole[: whole.index(b'"hip_api"')])
    assert "--partial" in refusal(path)
    recording = read(path, partial=True)
    assert (recording.truncated, len(recording.gpu)) == (True, 3)
    table = tmp_path / "a_kernel_trace.csv"
    table.write_text(OLD + f'"KERNEL_DISPATCH",8,2,99,"{GEMM}",15,1000,1500\n"KERNEL_DISPATCH",8,2,99,"a",16,1600,170')
    assert "last line" in refusal(table)
    assert read(table, partial=True).gpu.start.tolist() == [1000]


def test_what_is_not_read_is_said(tmp_path, monkeypatch):
    path = tmp_path / "a_results.json"
    path.write_bytes(made_others.rocprof_json(processes=2))
    assert "several processes" in refusal(path)
    path = tmp_path / "a_counter_collection.csv"
    path.write_text('"Kernel_Name","Start_Timestamp","End_Timestamp","Counter_Name","Counter_Value"\n"f",1,2,"W",3\n')
    assert "not a profiler trace" in refusal(path)
    monkeypatch.setattr(json_walk, "LARGEST_PIECE", 10_000)
    monkeypatch.setattr(json_walk, "LEAST_PIECE", 1_000)
    path = tmp_path / "b_results.json"
    path.write_bytes(b'{"rocprofiler-sdk-tool": [{"metadata": "' + b"x" * 400_000)
    assert "a value of more than" in refusal(path)
    monkeypatch.setattr(rocprof_csv, "LONGEST_ROW", 1_000)
    path = tmp_path / "b_kernel_trace.csv"
    for row in ('"' + "x" * 5_000, '"x\n",' * 1_000):  # a long line; and lines that quotes make one row
        path.write_text(OLD + row)
        assert "is no table: a row of more than" in refusal(path)
    path.write_text(OLD + f'"KERNEL_DISPATCH",8,2,99,"{GEMM}",15,1000,1500\n' * 100)
    assert len(read(path).gpu) == 100


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no such files there")
def test_what_lies_beside_and_is_no_file_is_not_waited_for(tmp_path):
    path = made_others.rocprof_csv(tmp_path / "a_kernel_trace.csv")
    beside = tmp_path / "a_hip_api_trace.csv"
    beside.unlink()
    os.mkfifo(beside)
    assert len(read(path).gpu) == 4


ODD = st.one_of(st.none(), st.booleans(), st.integers(-3, 2**70), st.floats(allow_nan=False), st.text(max_size=3),
                st.just([]), st.just({}), st.just({"handle": "x"}), st.just([[]]))  # fmt: skip


def _places(value, path=()):
    """Every place in a document."""
    yield path
    if isinstance(value, dict | list):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(below, (*path, key))


WHOLE = json.loads(made_others.rocprof_json())
PLACES = list(_places(WHOLE))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(PLACES[1:]), ODD, st.integers(64, 4096))
def test_any_value_in_any_place_is_read_or_refused(place, odd, size):
    document = json.loads(json.dumps(WHOLE))
    inside = document
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = odd
    text = json.dumps(document).encode()
    pieces = (text[at : at + size] for at in range(0, len(text), size))
    stream = RowStream("a", lambda rows: rocprof_json.rows(pieces, rows))
    try:
        count = sum(len(batch) for batch in stream.batches())
    except SourceError as error:
        assert "\n" not in str(error)  # noqa: PT017 - read or refused
    else:
        assert count <= 10


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 400))
def test_scrambled_tables_are_read_or_refused(tmp_path_factory, junk, at):
    folder = tmp_path_factory.mktemp("tables")
    path = made_others.rocprof_csv(folder / "a_kernel_trace.csv")
    for each in folder.iterdir():
        whole = each.read_bytes()
        each.write_bytes(whole[:at] + junk + whole[at:])
    try:
        analyse([read_trace(file) for file in trace_files([str(path)])])
    except SourceError as error:
        assert "\n" not in str(error)  # noqa: PT017 - read or refused
