"""Traces at addresses of fsspec: the same answer as of files, and what is not there or not readable in one line."""

from __future__ import annotations

import json
import sys
from itertools import count

import pytest
from made_jobs import job
from made_traces import packed, text

from vramwise.cli.main import main
from vramwise.utilization.job.folder import JobFolder
from vramwise.utilization.profiler import remote
from vramwise.utilization.profiler.files import trace_paths

fsspec = pytest.importorskip("fsspec")
names = count()


@pytest.fixture
def bucket():
    """Four ranks on two hosts, gzipped, in the memory of this process."""
    address = f"memory://bucket{next(names)}/run"
    for rank, trace in enumerate(job(4, late={2: 900})):
        with fsspec.open(f"{address}/node{rank // 2}/rank{rank}.json.gz", "wb") as file:
            file.write(packed(trace))
    return address


def test_folders_patterns_and_files_are_found(bucket):
    inside = [f"{bucket}/node{rank // 2}/rank{rank}.json.gz".replace("://", ":///") for rank in range(4)]
    assert trace_paths([bucket]) == trace_paths([f"{bucket}/**/*.gz"]) == trace_paths([f"{bucket}/*/rank*"]) == inside
    assert trace_paths([f"{bucket}/node1"]) == inside[2:]
    assert trace_paths([inside[0]]) == inside[:1]


def test_a_job_at_an_address_is_answered_as_of_files_and_read_once(bucket, tmp_path, capsys):
    pytest.importorskip("duckdb")
    for rank, trace in enumerate(job(4, late={2: 900})):
        (tmp_path / f"rank{rank}.json").write_bytes(text(trace))

    def asked(path, out):
        assert main(["profile", str(path), "-o", str(tmp_path / out), "--json"]) == 0
        printed = capsys.readouterr()
        return json.loads(printed.out)["job"], printed.err

    here, _ = asked(tmp_path, "here")
    there, said = asked(bucket, "there")
    assert there == here
    assert "4 traces read, 0 were there" in said
    changed = trace_paths([bucket])[1]
    with fsspec.open(changed, "wb") as file:
        file.write(packed(job(4)[1]))
    assert not JobFolder(tmp_path / "there").has(changed)
    assert "1 trace read, 3 were there" in asked(bucket, "there")[1]


def test_what_cannot_be_read_is_one_line(bucket, tmp_path, capsys):
    with fsspec.open(f"{bucket}/bad/empty.json", "wb"):
        pass
    with fsspec.open(f"{bucket}/bad/other.json", "wb") as file:
        file.write(b"PK\x03\x04")
    with fsspec.open(f"{bucket}/bad/cut.json.gz", "wb") as file:
        file.write(packed(job(4)[0])[:-20])
    for address, said, status in (
        (f"{bucket}/none.json", "no such file or folder", 4),
        (f"{bucket}/*.txt", "no file matches this pattern", 4),
        (f"{bucket}/bad/empty.json", "empty file", 4),
        (f"{bucket}/bad/other.json", "neither JSON nor gzip", 4),
        (f"{bucket}/bad/cut.json.gz", "the gzip data end too early (truncated; --partial reads what is there)", 4),
        ("nothing://a/b.json", "Protocol not known", 4),
        (f"simplecache::{bucket}/a.json", "expected one address", 2),
    ):
        assert main(["profile", address]) == status
        printed = capsys.readouterr().err
        assert said in printed
        assert printed.count("\n") == 1


def test_without_the_package_one_sentence(bucket, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    assert main(["profile", bucket]) == 1
    assert "addresses need fsspec: pip install 'vramwise[scale]'" in capsys.readouterr().err


def test_a_file_of_this_machine_has_an_address_too(tmp_path):
    (tmp_path / "rank0.json").write_bytes(text(job(4)[0]))
    (found,) = trace_paths([f"file://{tmp_path}"])
    assert b"".join(remote.remote_trace(found).chunks()) == (tmp_path / "rank0.json").read_bytes()
