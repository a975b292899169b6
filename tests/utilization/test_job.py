"""What is said of a whole job: planted faults are found and named, and nothing is found in a clean one."""

from __future__ import annotations

import pytest
from made_jobs import TRANSFER_US, job
from made_traces import text

from vramwise.utilization.job.answer import job_answer
from vramwise.utilization.job.parquet import ParquetFile
from vramwise.utilization.job.part import columns_of, part_of
from vramwise.utilization.job.schema import TABLES
from vramwise.utilization.job.tables import tables_at_once
from vramwise.utilization.profiler.collect import read_trace
from vramwise.utilization.profiler.files import trace_files

pytest.importorskip("duckdb")


@pytest.fixture
def answered(tmp_path):
    def answer(traces):
        parts = {table: ParquetFile(kinds) for table, kinds in TABLES.items()}
        for rank, trace in enumerate(traces):
            (tmp_path / f"r{rank}.json").write_bytes(text(trace))
        for file in trace_files([str(tmp_path)]):
            for table, found in part_of(read_trace(file)):
                parts[table].add(found)
        with tables_at_once(parts) as tables:
            return job_answer(tables)

    return answer


def test_nothing_is_found_in_a_clean_job(answered):
    found = answered(job(16))
    assert (found["ranks"], found["missing"], found["again"]) == (16, [], [])
    assert not any(found[name] for name in ("stragglers", "slow_links", "losses", "pipeline", "experts"))
    assert found["steps"] == {"count": 3, "median_ms": 10.0, "recorded_otherwise": []}
    assert found["share"]["compute"] == pytest.approx(0.994, abs=0.001)
    assert sum(found["share"].values()) == pytest.approx(1, abs=1e-5)


def test_the_rank_that_its_group_waits_for_is_named(answered):
    found = answered(job(16, late={6: 800}))
    (late,) = found["stragglers"]
    assert (late["rank"], late["collective"], late["group"]) == ("6", "all-reduce", "tp")
    assert late["late_ms_per_step"] == pytest.approx(0.8)
    (loss,) = found["losses"]
    assert loss["name"] == "all-reduce: the others wait for rank 6"
    assert loss["ms_per_step"] == pytest.approx(3 * 0.8 / 16)  # three of sixteen ranks wait
    assert "rank 6" in loss["try"]
    assert loss["gain_ms"] == loss["ms_per_step"]


def test_a_slow_link_is_named_by_its_ranks_and_the_usual_bandwidth(answered):
    found = answered(job(32, slow_group=5))
    (slow,) = found["slow_links"]
    assert slow["ranks"] == ["20", "21", "22", "23"]
    assert slow["usual_gb_s"] == pytest.approx(3 * slow["gb_s"], rel=0.01)
    assert slow["usual_gb_s"] == pytest.approx((1 << 21) / (TRANSFER_US * 1000), rel=0.01)
    assert found["stragglers"] == []


def test_uneven_experts_are_told_from_a_late_rank(answered):
    found = answered(job(8, kind="all_to_all", group_size=8, late={3: 1000}))
    assert found["experts"]["busiest_ranks"] == ["3"]
    assert found["experts"]["waiting_ms_per_step"] == pytest.approx(7 / 8)
    assert found["stragglers"] == []
    assert [loss["name"].partition(":")[0] for loss in found["losses"]] == ["uneven experts"]


def test_a_heavy_stage_and_the_bubble(answered):
    found = answered(job(8, kind="send", group_size=4, late={2: 3000, 6: 3000}))
    stages = found["pipeline"]
    assert stages["heaviest_stage"] == 2
    assert stages["bubble_ms_per_step"] == pytest.approx(3 * 3.0 / 4 + TRANSFER_US / 1000)
    assert found["losses"][0]["name"].startswith("pipeline bubble")


SAID = {"Collective name", "Process Group Name", "Process Group Ranks", "Group size", "In msg nelems", "Seq"}


def test_sends_of_which_a_trace_says_no_more_are_no_pipeline(answered):
    """As of torch before 2.3, where NCCL's kernel is all that stands there: DLRM's all-to-all is one, too."""
    traces = job(8, kind="all_to_all", group_size=8, late={2: 3000})
    for event in (event for trace in traces for event in trace["traceEvents"]):
        for said in (
            "Collective name",
            "Process Group Name",
            "Process Group Ranks",
            "Group size",
            "In msg nelems",
            "Seq",
        ):
            event.get("args", {}).pop(said, None)
    found = answered(traces)
    assert found["pipeline"] is None
    assert found["experts"] is None
    assert [loss["name"] for loss in found["losses"]] == ["all-to-all or send/receive: ranks arrive unevenly"]


def test_missing_ranks_equal_ranks_and_other_steps_are_said(answered):
    traces = job(8, late={2: 800})
    del traces[5]
    traces.append(job(8, steps=2)[1])
    found = answered(traces)
    assert found["missing"] == ["5"]
    assert len(found["again"]) == 1
    assert found["again"][0].startswith("1 (")
    assert found["steps"]["recorded_otherwise"] == found["again"]
    assert [late["rank"] for late in found["stragglers"]] == ["2"]


def test_the_strip_has_a_cell_for_each_rank_and_step(answered):
    spread = answered(job(4, late={1: 500}))["spread"]
    assert spread["steps"] == [0, 1, 2]
    assert {rank: len(cells) for rank, cells in spread["compute_ms"].items()} == dict.fromkeys("0123", 3)


def test_who_began_it_is_named_though_all_wait_for_a_stage_and_its_group_passes_it_on():
    """16 ranks, rank 5 comes 40 us late to its tensor-parallel group, which comes 40 us late to the gradients."""
    rows = {table: [] for table in TABLES}
    for rank in range(16):
        trace = f"r{rank}"
        times = {name: 0 for name in TABLES["traces"] if name.endswith("_ns")} | {"span_ns": 1_000_000}
        rows["traces"].append({"trace": trace, "rank": str(rank), "gpu_events": 1, **times})
        with_5 = rank // 4 == 1
        for group, kind, first, waits in (
            ("tp", "all-reduce", rank // 4, 40_000 if with_5 and rank != 5 else 0),
            ("dp", "reduce-scatter", rank % 4, 0 if with_5 else 40_000),
            ("pp", "send/receive", rank % 4, 0 if rank >= 12 else 90_000),
        ):
            rows["collectives"].append(
                {"trace": trace, "step": 0, "group": group, "members": f"from {first}", "group_size": 4, "kind": kind,
                 "number": 7, "sequenced": True, "start_ns": rank, "duration_ns": 80_000 + waits,
                 "exposed_ns": 80_000 + waits}
            )  # fmt: skip
    parts = {table: ParquetFile(TABLES[table]) for table in rows}
    for table, found in rows.items():
        parts[table].add(columns_of(found))
    with tables_at_once(parts) as tables:
        found = job_answer(tables)
    assert [(late["rank"], late["collective"], late["late_ms_per_step"]) for late in found["stragglers"]] == [
        ("5", "all-reduce", 0.04)
    ]
    advice = {loss["name"].partition(":")[0]: loss["try"] for loss in found["losses"]}
    assert "first rank 5, late in all-reduces" in advice["reduce-scatter"]
