"""What counts as a trace file, and that everything else is refused in one line with bounded memory."""

from __future__ import annotations

import gzip
import json
import zipfile
import zlib
from random import random

import pytest
from made_traces import GEMM, document, on_gpu, packed, text, two_steps

from vramwise.cli.main import main
from vramwise.errors import SourceError
from vramwise.utilization.profiler import collect, stream, trace
from vramwise.utilization.profiler.collect import read_trace
from vramwise.utilization.profiler.files import trace_files


def read(path, **options):
    (file,) = trace_files([str(path)])
    return read_trace(file, **options)


def refusal(path) -> str:
    with pytest.raises(SourceError) as error:
        [read_trace(file) for file in trace_files([str(path)])]
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("indent", [None, 2])
def test_batches_of_any_size_hold_the_same_events(tmp_path, monkeypatch, indent):
    names = ["plain", 'quote " brace }, {', "}\n,\n{", "ünïcode", "\\"]
    events = [on_gpu(names[i % 5], i, 0.5, i, nested={"a": [{"b": 1}, {"c": 2}]}) for i in range(400)]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document(events, note='"traceEvents": [', late=1), indent=indent, ensure_ascii=False))
    whole = read(path)
    monkeypatch.setattr(stream, "BATCH_BYTES", 700)
    monkeypatch.setattr(trace, "CHUNK_BYTES", 300)
    small = read(path)
    assert small.events_read == whole.events_read == 400
    assert small.gpu.start.tolist() == whole.gpu.start.tolist() == [1000 * i for i in range(400)]
    assert small.names == whole.names == tuple(names)
    assert small.rank == 0


def test_keys_behind_the_events_are_read(tmp_path, monkeypatch):
    value = {"traceEvents": two_steps(), "distributedInfo": {"rank": 3}, "list": [{"a": 1}, {"b": 2}]}
    path = tmp_path / "a.json"
    path.write_bytes(text(value))
    assert read(path).rank == 3
    monkeypatch.setattr(stream, "BATCH_BYTES", 64)
    monkeypatch.setattr(trace, "CHUNK_BYTES", 16)
    assert read(path).header["list"] == [{"a": 1}, {"b": 2}]


def test_a_bare_list_and_an_empty_one(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(text(two_steps()))
    assert read(path).events_read == 10
    path.write_bytes(b' {"traceEvents": [ ] } ')
    assert read(path).events_read == 0


def test_gzip_of_several_members(tmp_path):
    whole = text(document(two_steps()))
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(whole[:500]) + gzip.compress(whole[500:]))
    assert read(path).events_read == 10


def test_gzip_is_known_by_its_content(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(packed(document(two_steps())))
    assert read(path).events_read == 10


def test_zip_with_a_rank_each(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank1.json.gz", packed(document(two_steps(), rank=1)))
        archive.writestr("rank0.json", text(document(two_steps(), rank=0)))
        archive.writestr("notes.txt", "no trace")
    assert [read_trace(file).rank for file in trace_files([str(path)])] == [0, 1]


def test_a_folder_is_read_by_name(tmp_path):
    for rank in (1, 0):
        (tmp_path / f"rank{rank}.json").write_bytes(text(document(two_steps(), rank=rank)))
    (tmp_path / "readme.md").write_text("no trace")
    assert [read_trace(file).rank for file in trace_files([str(tmp_path)])] == [0, 1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty file"),
        (b"   \n", "cut off or broken before any traceEvents"),
        (b"hello", 'expected JSON, found "hello"'),
        (b"\x80\x04\x95", "expected JSON"),
        (b'{"model": 1, "layers": 2}', "JSON without traceEvents (it has: model, layers)"),
        (b"[1, 2]", "JSON without traceEvents"),
        (b'{"traceEvents": 5}', "JSON without traceEvents"),
        (b'{"a": "traceEvents', "cut off or broken before any traceEvents"),
        (text(document(two_steps()))[:-30], "cut off or broken after 9 events (--partial"),
        (packed(document(two_steps()))[:-20], "truncated"),
        (b"\x1f\x8b\x08\x00garbage-garbage", "gzip"),
        (b"PK\x03\x04 no zip", "damaged zip file"),
        (b'{"traceEvents": [' + b"[" * 100_000, "cut off or broken"),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": "soon", "dur": 1}]}', "not a time in microseconds"),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": ' + b"9" * 300 + b', "dur": 1}]}', "not a time"),
    ],
)
def test_refused_in_one_line(tmp_path, content, said):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert said in refusal(path)


def test_missing_file_and_empty_folder(tmp_path):
    assert "no such file" in refusal(tmp_path / "none.json")
    assert "no trace in this folder" in refusal(tmp_path)


@pytest.mark.parametrize("kind", ["gz", "zip"])
def test_bombs_are_left_early(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(trace, "FREE_BYTES", 2_000_000)
    path = tmp_path / f"a.{kind}"
    content = b'{"a": "' + b" " * 30_000_000
    if kind == "gz":
        path.write_bytes(gzip.compress(content))
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.json", content)
    assert "expands more than 200 times" in refusal(path)


def test_an_endless_event_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "LARGEST_PIECE", 100_000)
    monkeypatch.setattr(stream, "LARGEST_HEADER", 100_000)
    monkeypatch.setattr(stream, "BATCH_BYTES", 20_000)
    monkeypatch.setattr(trace, "CHUNK_BYTES", 10_000)
    path = tmp_path / "a.json"
    path.write_bytes(b'{"traceEvents": [{"name": "' + b"x" * 500_000)
    assert "an event of more than" in refusal(path)
    path.write_bytes(b'{"header": "' + b"x" * 500_000)
    assert "a header of more than" in refusal(path)


def test_too_many_events_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "MOST_KEPT", 5)
    monkeypatch.setattr(stream, "BATCH_BYTES", 700)
    monkeypatch.setattr(trace, "CHUNK_BYTES", 300)
    path = tmp_path / "a.json"
    path.write_bytes(text(document([on_gpu(GEMM, i, 1, i) for i in range(50)])))
    assert "profile fewer steps" in refusal(path)


def test_partial_reads_what_is_there(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(text(document(two_steps()))[:-30])
    recording = read(path, partial=True)
    assert recording.truncated
    assert recording.events_read == 9


@pytest.mark.parametrize("inside_of", [None, "zip"])
def test_a_packed_trace_that_ends_too_early_is_read_as_far_as_it_goes(tmp_path, inside_of):
    whole = gzip.compress(text(document([on_gpu(f"{GEMM} {random()}", 10 * at, 5, at) for at in range(2_000)])))
    path = tmp_path / "a.json.gz"
    path.write_bytes(whole[: len(whole) // 2])
    if inside_of:
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.json.gz", whole[: len(whole) // 2])
    assert "end too early (truncated; --partial reads what is there)" in refusal(path)
    recording = read(path, partial=True)
    assert recording.truncated
    assert 500 < len(recording.gpu) < 1_500


def test_a_packed_trace_without_its_last_bytes_is_whole(tmp_path):
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(text(document(two_steps())))[:-8])
    recording = read(path, partial=True)
    assert (recording.truncated, recording.events_read) == (False, 10)


def test_odd_events_are_passed_over(tmp_path):
    odd = [None, 5, [], {}, {"ph": "X"}, {"cat": 7, "name": [], "args": "text"}, {"ph": "X", "cat": "kernel"},
           {"ph": "X", "cat": "kernel", "name": None, "ts": 1, "dur": 1,
            "args": {"stream": "7", "correlation": -3}}]  # fmt: skip
    path = tmp_path / "a.json"
    path.write_bytes(text({"traceEvents": [*odd, on_gpu(GEMM, 2, 1, 1)]}))
    recording = read(path)
    assert recording.gpu.stream.tolist() == [7, 7]
    assert recording.left_out == {"GPU events without a time": 1}


def test_launches_whose_numbers_are_texts_are_the_same(tmp_path):
    def calls(name, kind):
        events = two_steps()
        for event in events:
            event["args"] = {
                key: kind(value) if key == "correlation" else value for key, value in event["args"].items()
            }
        path = tmp_path / name
        path.write_bytes(text(document(events)))
        return read(path).calls

    plain, texts = calls("plain.json", int), calls("texts.json", str)
    assert plain.correlation.tolist() == texts.correlation.tolist() == [1, 2, 3, 4]
    assert plain.start.tolist() == texts.start.tolist()


def test_not_numbers_are_read_by_the_standard_library(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(text(document([on_gpu(GEMM, 2, 1, 1, extra=float("nan"))])))
    assert read(path).events_read == 1


def test_zlib_streams_are_not_gzip(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(zlib.compress(text(document(two_steps()))))
    assert "expected JSON" in refusal(path)


def test_command_prints_tables_json_and_a_picture(tmp_path, capsys):
    path = tmp_path / "rank0.json"
    path.write_bytes(text(document(two_steps())))
    assert main(["profile", str(path), "--steps", "--plot", str(tmp_path / "a.svg")]) == 0
    printed = capsys.readouterr().out
    for words in ("exposed communication", "the CPU was late", "ProfilerStep#2", "all-reduce", "bus GB/s"):
        assert words in printed
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert main(["profile", str(path), "--definitions"]) == 0
    assert "Holistic Trace Analysis" in capsys.readouterr().out
    assert main(["profile", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == 1
    assert answer["ranks"]["0"]["window"]["steps"] == ["ProfilerStep#1", "ProfilerStep#2"]


def test_command_refuses_in_one_line(tmp_path, capsys):
    path = tmp_path / "a.json"
    path.write_bytes(b"{}")
    assert main(["profile", str(path)]) == 4
    error = capsys.readouterr().err
    assert error.startswith("vramwise: ")
    assert error.count("\n") == 1
    assert main(["profile", str(path), "--top", "0"]) == 2
    assert main(["profile", str(path), "--picture", "a.png"]) == 2


def test_events_without_length(tmp_path, capsys):
    path = tmp_path / "a.json"
    path.write_bytes(text(document([on_gpu(GEMM, 5, 0, 1)])))
    for flags in ([], ["--definitions"], ["--json"], ["--picture", str(tmp_path / "a.svg")]):
        assert main(["profile", str(path), *flags]) == 0
    assert "have no length" in capsys.readouterr().out


def test_a_cut_file_is_named_once(tmp_path, monkeypatch):
    """By its whole path, as a job's files are, and from the folder above it."""
    whole = gzip.compress(text(document([on_gpu(f"{GEMM} {random()}", 10 * at, 5, at) for at in range(9_000)])))
    path = tmp_path / "job" / "rank_1.json.gz"
    path.parent.mkdir()
    path.write_bytes(whole[: len(whole) * 3 // 4])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match="too early") as refused:
        read_trace(trace_files([str(path)])[0])
    assert str(refused.value).count("rank_1") == 1
