"""Traces of Nsight Systems, ROCm, JAX and Chakra give the figures that Kineto's trace of the same run gives."""

from __future__ import annotations

import sqlite3

import made_others
import pytest
from made_traces import document, text, two_steps

from vramwise.cli.main import main
from vramwise.errors import SourceError
from vramwise.utilization.profiler.analysis import analyse
from vramwise.utilization.profiler.collect import read_trace
from vramwise.utilization.profiler.files import trace_files
from vramwise.utilization.profiler.memory_points import read_with_memory


def figures(path):
    answer = analyse([read_trace(file) for file in trace_files([str(path)])])
    return answer["ranks"]


def refusal(path, **options) -> str:
    with pytest.raises(SourceError) as error:
        [read_trace(file, **options) for file in trace_files([str(path)])]
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def kineto(tmp_path):
    path = tmp_path / "kineto.json"
    path.write_bytes(text(document(two_steps())))
    return figures(path)["0"]


def made(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    if kind in ("nsys", "rocpd"):
        return getattr(made_others, kind)(path)
    if kind == "rocprof_csv":
        return made_others.rocprof_csv(tmp_path / "a_kernel_trace.csv")
    whole = {"xplane": made_others.xspace, "chakra": made_others.chakra, "rocprof_json": made_others.rocprof_json}
    path.write_bytes(whole[kind]())
    return path


KINDS = ["nsys", "rocpd", "rocprof_json", "rocprof_csv", "xplane", "chakra"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_run_gives_the_same_figures(tmp_path, kineto, kind):
    (found,) = figures(made(tmp_path, kind)).values()
    assert found["classified"] == kineto["classified"]
    assert found["categories"] == kineto["categories"]
    assert [one["kind"] for one in found["collectives"]] == ["all-reduce"]
    if kind != "chakra":  # which names no launches
        assert found["idle_causes"] == kineto["idle_causes"]
        assert found["orphans"] == 0
    if kind not in ("rocpd", "chakra"):
        assert found["steps"] == kineto["steps"]
    gpus = {"nsys": "NVIDIA H100 80GB HBM3", "xplane": None, "chakra": None}
    assert found["gpu"] == gpus.get(kind, "AMD Instinct MI300X")


def test_every_gpu_of_a_report_is_a_rank(tmp_path):
    path = made_others.nsys(tmp_path / "node.sqlite", devices=(0, 1, 2))
    ranks = figures(path)
    assert list(ranks) == ["0", "1", "2"]
    assert [one["all_events"]["gpu_events"] for one in ranks.values()] == [4, 4, 4]
    assert ranks["1"]["orphans"] == 0
    assert ranks["2"]["file"].endswith("node.sqlite:GPU 2, process 1002")
    assert ranks["2"]["window"]["start_ns"] == 1_700_000_000_000_100_000


def test_the_command_and_the_page_read_them(tmp_path, capsys):
    path = made_others.nsys(tmp_path / "a.sqlite")
    assert main(["profile", str(tmp_path)]) == 0
    assert "NVIDIA H100 80GB HBM3" in capsys.readouterr().out
    assert read_with_memory(trace_files([str(path)])[0])[1] == []


def test_whole_graphs_count(tmp_path):
    graph = """CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER,
        graphId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (600000, 700000, 0, 1, 7, 8, 16777216000);"""
    (found,) = figures(made_others.nsys(tmp_path / "a.sqlite", extra=graph)).values()
    assert found["all_events"]["gpu_events"] == 5
    assert any("traced as a whole" in one["name"] for one in found["kernels"])


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_and_scrambled_files_are_one_line(tmp_path, kind):
    whole = made(tmp_path, kind).read_bytes()
    path = tmp_path / f"cut.{kind}"
    for end in (17, 100, len(whole) // 3, len(whole) - 30):
        path.write_bytes(whole[:end])
        refusal(path)
    for place in range(20, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:place] + b"\xff" * 9 + whole[place + 9 :])
        try:
            figures(path)
        except SourceError as error:
            assert "\n" not in str(error)  # noqa: PT017 - most scrambled bytes are names or times, and are read


def test_partial_reads_what_a_cut_off_file_holds(tmp_path):
    path = tmp_path / "a.et"
    path.write_bytes(made_others.chakra()[:-10])
    assert "--partial" in refusal(path)
    recording = read_trace(trace_files([str(path)])[0], partial=True)
    assert recording.truncated
    assert len(recording.gpu) == 3


def test_schemas_that_do_something_are_not_run(tmp_path):
    """A view in place of a table, a table that calls functions, one that is virtual, and no profiler's tables."""
    path = made_others.nsys(tmp_path / "view.sqlite")
    base = sqlite3.connect(path)
    base.executescript("""
        ALTER TABLE NVTX_EVENTS RENAME TO hidden;
        CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
            SELECT i AS start, i AS end, 'step 1' AS text, NULL AS textId, 0 AS globalTid FROM n;
    """)
    base.close()
    (found,) = figures(path).values()
    assert found["steps"] == []
    path = made_others.nsys(tmp_path / "generated.sqlite")
    base = sqlite3.connect(path)
    base.executescript("""
        DROP TABLE StringIds;
        CREATE TABLE StringIds (id INTEGER, value TEXT AS (hex(zeroblob(100000))));
        INSERT INTO StringIds (id) VALUES (1);
    """)
    base.close()
    (found,) = figures(path).values()
    assert [one["name"] for one in found["kernels"]] == ["unnamed"]
    path = tmp_path / "other.sqlite"
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE bookmarks (url TEXT)")
    base.commit()
    base.close()
    assert "no profiler's tables" in refusal(path)
    assert "bookmarks" in refusal(path)


def test_wrong_types_are_left_out_and_said(tmp_path):
    extra = """INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('soon', NULL, 0, 1, 7, 5, 16777216000, 0, 0);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (9e300, x'00', 0, 1, 'a', 'b', 16777216000, 'c', 77);"""
    (found,) = figures(made_others.nsys(tmp_path / "a.sqlite", extra=extra)).values()
    assert found["all_events"]["gpu_events"] == 4
    assert found["window"]["left_out"] == {"GPU events without a time": 2}


def test_a_simulators_trace_is_told_from_a_recorded_one(tmp_path):
    path = tmp_path / "a.et"
    path.write_bytes(made_others.chakra(timed=False))
    assert "without times" in refusal(path)


def test_a_chakra_trace_of_2023_is_told_and_refused_for_its_missing_starts(tmp_path, capsys):
    """Its first message has attributes and no version, its nodes durations alone (mlcommons/chakra@bb67f05)."""
    field, number = made_others.field, made_others.number
    metadata = field(2, field(1, "schema") + field(29, "1.0.1")) + field(2, field(1, "pid") + field(13, 102))
    node = field(1, 216) + field(2, "void gemm") + field(3, 4) + field(7, 318) + field(10, field(1, "is_cpu_op"))
    path = tmp_path / "old.et"
    path.write_bytes(number(len(metadata)) + metadata + number(len(node)) + node)
    assert main(["profile", str(path)]) == 4
    assert "a Chakra trace with durations and no starts" in capsys.readouterr().err


def perfetto(packets: int = 3) -> bytes:
    """A Trace as Perfetto writes one: packets of a clock, of a track and of events."""
    field = made_others.field
    kinds = (field(6, b"") + field(3, 1), field(60, field(1, 7) + field(2, "GPU 0")) + field(10, 1),
             field(8, 1000) + field(11, field(9, 1) + field(11, 7)) + field(10, 1))  # fmt: skip
    return b"".join(field(1, kinds[min(place, 2)]) for place in range(packets))


@pytest.mark.parametrize("name", ["a_results.pftrace", "a.perfetto-trace", "a.json"])
def test_a_trace_of_perfettos_says_what_to_give_instead(tmp_path, name, capsys):
    path = tmp_path / name
    path.write_bytes(perfetto())
    assert main(["profile", str(path)]) == 4
    said = capsys.readouterr().err
    assert "a Perfetto trace (.pftrace), made to be viewed: of rocprofv3 give the rocpd database" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("content", [perfetto()[:3], b"\x0a\xff\xff\xff\xff\x7f", b"\x0a\x02\x00\x00", b"\x0a" * 40])
def test_what_only_begins_as_perfettos_is_no_json(tmp_path, content):
    path = tmp_path / "a.pftrace"
    path.write_bytes(content)
    assert "Perfetto" not in refusal(path)
