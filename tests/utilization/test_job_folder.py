"""The folder of a job: filled by one process, by several, by shards and again, it gives one answer."""

from __future__ import annotations

import errno
import gzip
import json
import os
import platform
import resource
import shutil
import signal
from pathlib import Path

import pytest
from made_jobs import job
from made_traces import text

from shown_commands import sessions, shown
from vramwise.cli.main import main
from vramwise.errors import SourceError
from vramwise.utilization.job import folder as folders
from vramwise.utilization.job.answer import answer_of
from vramwise.utilization.job.folder import JobFolder
from vramwise.utilization.job.mapped import DIED, Done, map_trace, mapped
from vramwise.utilization.job.parquet import ParquetFile
from vramwise.utilization.job.queries import QUERIES
from vramwise.utilization.job.schema import TABLES
from vramwise.utilization.profiler.files import trace_paths

pytest.importorskip("duckdb")
write_table = pytest.importorskip("pyarrow.parquet").write_table


PAGE = Path(__file__).parents[2] / "docs" / "whole-jobs.md"


def written(traces, folder):
    """Ranks on two hosts, a folder each, as `tensorboard_trace_handler` names them."""
    for rank, trace in enumerate(traces):
        node = f"node{rank * 2 // len(traces)}"
        (folder / node).mkdir(parents=True, exist_ok=True)
        (folder / node / f"{node}_{100 + rank}.17000000.pt.trace.json.gz").write_bytes(gzip.compress(text(trace)))
    return folder


@pytest.fixture
def traces(tmp_path):
    """Eight ranks; rank 2 is late."""
    return written(job(8, late={2: 900}), tmp_path / "traces")


def asked(capsys, *arguments):
    assert main(["profile", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_one_process_several_and_shards_give_one_answer(traces, tmp_path, capsys):
    one = asked(capsys, traces, "-o", tmp_path / "one")["job"]
    assert asked(capsys, traces, "-o", tmp_path / "two", "--jobs", "2")["job"] == one
    for shard in ("3/3", "1/3", "2/3"):
        assert main(["profile", str(traces), "-o", str(tmp_path / "shards"), "--shard", shard]) == 0
    capsys.readouterr()
    assert asked(capsys, tmp_path / "shards")["job"] == one
    assert asked(capsys, f"{traces}/**/*.json.gz")["job"] == one
    assert [(late["rank"], late["host"]) for late in one["stragglers"]] == [("2", "node0")]


def test_what_is_there_is_not_read_again_and_what_changed_is(traces, tmp_path, capsys):
    out = JobFolder(tmp_path / "out")
    out.begin()
    paths = trace_paths([str(traces)])
    for path in paths:
        map_trace(path, str(out.path))
    assert all(out.has(path) for path in paths)
    assert out.has(os.path.relpath(paths[0]))
    os.utime(paths[0], ns=(1, 1))
    assert [out.has(path) for path in paths] == [False] + [True] * 7
    assert main(["profile", str(traces), "-o", str(out.path)]) == 0
    assert "1 trace read, 7 were there" in capsys.readouterr().err
    open(paths[0], "wb").close()
    assert main(["profile", str(traces), "-o", str(out.path)]) == 0
    assert len(list(out.parts.iterdir())) == 7  # what it was is gone with it


def test_a_broken_trace_is_reported_and_the_rest_goes_on(traces, tmp_path, capsys):
    (traces / "node0" / "broken.json").write_text('{"traceEvents": [', "utf-8")
    (traces / "node1" / "empty.json").write_text("", "utf-8")
    found = asked(capsys, traces, "-o", tmp_path / "out")["job"]
    assert found["ranks"] == 8
    assert sorted(os.path.basename(trace) for trace in found["failed"]) == ["broken.json", "empty.json"]
    assert main(["profile", str(traces)]) == 0  # the same without a folder
    printed = capsys.readouterr()
    assert printed.err.startswith("vramwise: not read: ")
    assert printed.err.endswith(" and 1 more\n")
    assert "rank 2 on node0" in printed.out


def test_a_process_that_dies_costs_one_trace():
    """What stands for traces are signals that the process that gets one sends itself: 0 is none, 9 kills it."""
    numbers = [0] * 12
    numbers[4] = signal.SIGKILL
    ended = list(mapped(numbers, signal.raise_signal, 2))
    assert sorted(map(str, ended)) == sorted([str(None)] * 11 + [str(Done(str(signal.SIGKILL), DIED))])


def test_a_full_disk_leaves_nothing_half_written(traces, tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out = tmp_path / "out"
    monkeypatch.setattr(folders.Path, "rename", full)
    assert main(["profile", str(traces), "-o", str(out)]) == 4
    assert capsys.readouterr().err.splitlines()[-1] == f"vramwise: {out}: cannot be written (No space left on device)"
    assert not list((out / "parts").iterdir())
    assert not list(out.glob(f"{folders.UNWRITTEN}*"))


def test_a_disk_that_is_full_in_the_middle_of_a_table_leaves_nothing_half_written(traces, tmp_path, capsys):
    """A limit of the operating system cuts writes off as a full disk does; afterwards the same command goes on."""
    out = tmp_path / "out"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        assert main(["profile", str(traces), "-o", str(out)]) == 4
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert capsys.readouterr().err.splitlines()[-1] == f"vramwise: {out}: cannot be written (File too large)"
    assert not list((out / "parts").iterdir())
    assert not list(out.glob(f"{folders.UNWRITTEN}*"))
    assert main(["profile", str(traces), "-o", str(out)]) == 0
    assert "8 traces read, 0 were there" in capsys.readouterr().err


def test_clocks_that_are_hours_apart_change_nothing(tmp_path, capsys):
    """Rank after rank 5,000 s later; the same late rank, losses and path."""
    answers = []
    for name, apart_us in (("together", 0), ("apart", 5_000_000_000)):
        for rank, trace in enumerate(job(8, late={2: 900})):
            moved = [event | {"ts": event["ts"] + rank * apart_us} for event in trace["traceEvents"]]
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / f"rank{rank}.json").write_bytes(text(trace | {"traceEvents": moved}))
        answers.append(asked(capsys, tmp_path / name, "-o", tmp_path / f"out-{name}", "--critical-path"))
    together, apart = answers
    assert together["job"]["stragglers"][0]["rank"] == "2"
    assert apart == together


def test_a_folder_of_something_else_is_left_alone(traces, tmp_path, capsys):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"x")
    assert main(["profile", str(traces), "-o", str(tmp_path / "photos")]) == 2
    assert "expected a new folder, an empty one or a job's" in capsys.readouterr().err


def test_another_share_may_begin_the_same_folder_at_the_same_moment(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / ".job.json.node7.4711").touch()
    JobFolder(tmp_path).begin()
    JobFolder(tmp_path).check()


def test_what_a_dead_process_left_is_removed(tmp_path):
    folder = JobFolder(tmp_path / "out")
    folder.begin()
    dead, alive = (folder.path / f"{folders.UNWRITTEN}a.{platform.node()}.{each}" for each in (2**30, os.getpid()))
    for each in (dead, alive):
        each.mkdir()
    folder.end()
    assert [dead.exists(), alive.exists()] == [False, True]


def test_tables_of_another_schema_are_refused(traces, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["profile", str(traces), "-o", str(out)]) == 0
    (out / "job.json").write_text('{"schema": 99}', "utf-8")
    capsys.readouterr()
    assert main(["profile", str(out)]) == 4
    assert "its tables have schema 99, expected 2" in capsys.readouterr().err
    (out / "job.json").write_text('{"schema": 2}', "utf-8")
    steps = next((out / "parts").glob("*/steps.parquet"))
    damaged = ParquetFile(TABLES["steps"])
    damaged.add({"trace": ["a"], "step": [1]})
    steps.write_bytes(damaged.content())
    with pytest.raises(SourceError, match=r"damaged tables \(steps.start_ns without a value\)"):
        answer_of(JobFolder(out))
    steps.write_bytes(steps.read_bytes()[:100])
    with pytest.raises(SourceError, match="damaged tables"):
        answer_of(JobFolder(out))


def test_foreign_tables_are_refused_or_shown_clean(traces, tmp_path, capsys):
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    out = tmp_path / "out"
    assert main(["profile", str(traces), "-o", str(out)]) == 0
    part = sorted((out / "parts").glob("*/traces.parquet"))[0]
    table = parquet.read_table(part)
    (row,) = table.to_pylist()
    hostile = row | {"rank": "9\x1b[31m\n\x07", "host": "h\x1b]0;x\x07", "world_size": 2**62}
    parquet.write_table(arrow.Table.from_pylist([hostile], schema=table.schema), part)
    capsys.readouterr()
    for arguments in ([], ["--sql", "ranks"]):
        assert main(["profile", str(out), *arguments]) == 0
        assert not set("\x1b\x07") & set(capsys.readouterr().out)
    for broken in ({"span_ns": "abc"}, {"span_ns": None}):
        parquet.write_table(arrow.Table.from_pylist([row | broken]), part)
        assert main(["profile", str(out)]) == 4
        assert "damaged tables" in capsys.readouterr().err


@pytest.mark.parametrize("shard", ["0/4", "5/4", "a/b", "3", "1/", "-1/2", "1/99999999999999999999"])
def test_a_share_that_is_none_is_refused(traces, tmp_path, shard, capsys):
    assert main(["profile", str(traces), "-o", str(tmp_path / "out"), f"--shard={shard}"]) == 2
    assert "--shard: expected I/N with I from 1 to N" in capsys.readouterr().err


def test_the_tables_answer_questions_and_reach_nothing_else(traces, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["profile", str(traces), "-o", str(out)]) == 0
    capsys.readouterr()
    for name in QUERIES:
        rows = asked(capsys, out, "--sql", name)
        assert rows or name == "memory"
    assert asked(capsys, out, "--sql", "SELECT count(*) AS n FROM collectives") == [{"n": 24}]
    for query in (
        "SELECT * FROM read_csv('/etc/passwd')", "COPY (SELECT 1) TO 'x.csv'", "ATTACH 'x.db'", "INSTALL httpfs",
        "SET enable_external_access = true", "SELECT 1; SELECT 2", "SELECT * FROM glob('/*')", "DROP TABLE ranks", "no",
        "SELECT * FROM range(10000000000)", "FROM '/etc/passwd'", "LOAD httpfs", "PRAGMA database_list",
    ):  # fmt: skip
        assert main(["profile", str(out), "--sql", query]) == 2
        assert capsys.readouterr().err.startswith("vramwise: --sql: ")
    assert main(["profile", str(out), "--sql"]) == 0
    assert "questions by name" in capsys.readouterr().out


def test_a_rank_of_a_job_has_the_figures_of_its_trace(traces, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["profile", str(traces), "-o", str(out)]) == 0
    capsys.readouterr()
    of_rank = asked(capsys, out, "--rank", "2")["ranks"]
    assert of_rank == {"2": asked(capsys, traces)["ranks"]["2"]}
    assert main(["profile", str(out), "--rank", "77"]) == 2
    assert 'no rank "77" among the 8 of this job' in capsys.readouterr().err


def test_a_rank_whose_trace_is_gone_has_the_figures_of_its_tables(traces, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["profile", str(traces), "-o", str(out)]) == 0
    capsys.readouterr()
    shutil.rmtree(traces)
    found = asked(capsys, out, "--rank", "1")["tables"]["1"]
    assert (found["host"], found["gpu_events"]) == ("node0", 9)
    assert [(one["kind"], one["calls"], one["waiting_ms"]) for one in found["waits"]] == [("all-reduce", 3, 2.7)]
    assert found["kernels"][0]["sum_ms"] == found["compute_ms"]
    assert main(["profile", str(out), "--rank", "1"]) == 0
    assert "by its tables: there is no file" in capsys.readouterr().out
    assert main(["profile", str(out), "--rank", "1", "--critical-path"]) == 0
    assert "critical path   ProfilerStep#1, 10.00 ms: rank 1 10.00 ms" in capsys.readouterr().out
    assert main(["profile", str(out), "--rank", "1", "--compat", "hta"]) == 2
    assert "--compat needs the trace of rank 1" in capsys.readouterr().err


RUN = "llama-3-8b --gpu a100-sxm-80gb --examples-per-second 3 --sequence-length 2048 -n 8 --reference 3300"


@pytest.mark.parametrize("step", ["", "2", "ProfilerStep#0"])
def test_the_path_and_the_ways_are_those_of_the_traces_though_they_are_gone(traces, tmp_path, step, capsys):
    flags = [f"--critical-path={step}" if step else "--critical-path", "--run", RUN]
    by_traces = asked(capsys, traces, *flags)
    by_tables = asked(capsys, traces, "-o", tmp_path / "out", *flags)
    shutil.rmtree(traces)
    again = asked(capsys, tmp_path / "out", *flags)
    for said in ("critical_path", "ways"):
        assert again[said] == by_tables[said] == by_traces[said]
    assert again["critical_path"]["matched_collectives"] == 2  # one of each group of four
    assert main(["profile", str(tmp_path / "out"), *flags]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "what is hidden saves nothing" in printed
    assert "throughput of 3,300 tokens/s/GPU 23.27 %" in printed


@pytest.mark.parametrize("flags", [("--compat", "hta"), ("--definitions",), ("--plot", "a.svg"), ("--memory",)])
def test_what_a_jobs_tables_do_not_hold_is_said(traces, tmp_path, flags, capsys):
    assert main(["profile", str(traces), "-o", str(tmp_path / "out"), *flags]) == 2
    assert f"{flags[0]}: a job is answered from its tables, add --rank R" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_two_runs_differ_by_parts_that_add_up(tmp_path, capsys):
    for name, late in (("a", 900), ("b", 0)):
        for rank, trace in enumerate(job(8, late={2: late})):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / f"rank{rank}.json").write_bytes(text(trace))
        map_into = JobFolder(tmp_path / f"out-{name}")
        map_into.begin()
        for trace in trace_paths([str(tmp_path / name)]):
            map_trace(trace, str(map_into.path))
    both = [str(tmp_path / "out-a"), str(tmp_path / "out-b")]
    assert main(["compare", *both, "--json"]) == 0
    whole, *parts = json.loads(capsys.readouterr().out)["terms"]
    for side in ("a", "b", "difference"):
        assert sum(term[side] for term in parts) == pytest.approx(whole[side])
    waiting = next(term for term in parts if term["path"] == "step/exposed communication")
    assert waiting["difference"] == pytest.approx(3 * 0.9 / 8)
    assert main(["compare", *both]) == 0
    assert "exposed communication" in capsys.readouterr().out
    assert main(["compare", both[0], str(tmp_path / "a" / "rank0.json")]) == 2
    assert "expected the folder of a job too" in capsys.readouterr().err


def test_processes_need_no_folder_of_their_own_and_a_rank_can_be_asked_at_once(traces, tmp_path, capsys):
    kept = asked(capsys, traces, "-o", tmp_path / "out")
    assert asked(capsys, traces, "--jobs", "2") == kept
    of_rank = asked(capsys, traces, "-o", tmp_path / "new", "--rank", "2")["ranks"]
    assert of_rank == asked(capsys, traces, "--rank", "2")["ranks"]
    assert main(["profile", str(tmp_path / "out"), "--jobs", "2"]) == 2
    assert "--jobs: expected traces to read" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [("--shard", "1/2"), ("--sql",)])
def test_flags_of_a_folder_without_one(traces, flags, capsys):
    assert main(["profile", str(traces), *flags]) == 2
    assert "goes with -o FOLDER" in capsys.readouterr().err


def test_without_duckdb_several_traces_are_answered_one_by_one(traces, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert main(["profile", str(traces)]) == 0
    printed = capsys.readouterr().out
    assert "rank 7" in printed
    assert printed.endswith("pip install 'vramwise[scale]'\n")


@pytest.mark.skipif(platform.system() == "Windows", reason="the page's commands are for a POSIX shell")
def test_the_page_shows_what_is_printed_of_such_a_job(tmp_path):
    written(job(16, steps=5, late={6: 800}), tmp_path / "job")
    assert len(list(sessions(PAGE))) == 2
    for command, output in sessions(PAGE):
        assert shown(command, merged=True, at=tmp_path).out == output


def test_many_traces_are_read_one_after_the_other_though_nothing_is_kept(traces, tmp_path, capsys, monkeypatch):
    """As with -o, whose screen it is; of a whole job no trace stays in memory, and one that is broken is named."""
    assert main(["profile", str(traces), "-o", str(tmp_path / "out")]) == 0
    kept = capsys.readouterr().out
    monkeypatch.setattr("vramwise.cli.profile._read", lambda *_, **__: pytest.fail("all traces at once"))
    assert main(["profile", str(traces)]) == 0
    assert capsys.readouterr() == (kept, "")
    (traces / "node0" / "rank99.json").write_bytes(b'{"traceEvents": [{"ph"')
    assert main(["profile", str(traces)]) == 0
    found = capsys.readouterr()
    assert "not read: " in found.out
    assert found.err.startswith("vramwise: not read: ")
