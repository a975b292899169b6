"""The figures of a trace whose answer is known by hand, and by brute force on random ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_traces import ADD, ALL_REDUCE, COPY, GEMM, document, launch, on_gpu, step, text, two_steps

from vramwise.cli.main import main
from vramwise.utilization.profiler import decode
from vramwise.utilization.profiler.analysis import analyse, rank_figures
from vramwise.utilization.profiler.collect import read_trace
from vramwise.utilization.profiler.files import trace_files
from vramwise.utilization.profiler.kernels import kernel, on_old_list, tensor_core_rules
from vramwise.utilization.profiler.times import nanoseconds


def recorded(tmp_path: Path, value, name: str = "rank-0.pt.trace.json"):
    path = tmp_path / name
    path.write_bytes(text(value))
    return read_trace(trace_files([str(path)])[0])


def test_parts_add_up_to_the_span(tmp_path):
    figures = rank_figures(recorded(tmp_path, document(two_steps())))
    every = figures["all_events"]
    assert every["span_us"] == 400
    assert (every["compute_us"], every["comm_us"], every["memory_us"]) == (200, 100, 10)
    assert (every["exposed_comm_us"], every["exposed_memory_us"], every["idle_us"]) == (50, 10, 140)
    assert every["comm_compute_overlap_us"] == 50
    assert every["overlap_pct_of_comm"] == 50
    assert every["streams"] == [20, 7]
    assert figures["gpu"] == "NVIDIA H100 80GB HBM3"
    assert figures["orphans"] == 0


@pytest.mark.parametrize(("base", "start_ns"), [(10**18, 10**18 + 100_000), (True, 100_000), ("soon", 100_000)])
def test_the_window_starts_at_the_files_base_time(tmp_path, base, start_ns):
    every = rank_figures(recorded(tmp_path, document(two_steps(), baseTimeNanoseconds=base)))
    assert every["window"]["start_ns"] == start_ns  # the first GPU event is at 100 microseconds
    assert every["window"]["span_us"] == 400


def test_hta_leaves_out_the_last_step(tmp_path):
    hta = rank_figures(recorded(tmp_path, document(two_steps())))["hta"]
    assert hta["gpu_events_kept"] == 3
    assert (hta["kernel_time_us"], hta["idle_us"], hta["compute_us"], hta["non_compute_us"]) == (210, 50, 100, 60)
    assert hta["overlap_pct_of_comm"] == 50


def test_one_step_is_kept_by_hta(tmp_path):
    events = [step(1, 0, 50), launch(1, 1), on_gpu(GEMM, 10, 30, 1)]
    hta = rank_figures(recorded(tmp_path, document(events)))["hta"]
    assert hta["gpu_events_kept"] == 1
    assert hta["overlap_pct_of_comm"] is None  # no communication: nothing, not 0 %


def test_idle_by_cause(tmp_path):
    causes = rank_figures(recorded(tmp_path, document(two_steps())))["idle_causes"]
    assert causes == {"gaps": 2, "idle_us": 140, "cpu_late_us": 80, "launch_latency_us": 60, "waiting_us": 0,
                      "unknown_us": 0}  # fmt: skip


def test_steps_own_what_they_launched(tmp_path):
    first, second = rank_figures(recorded(tmp_path, document(two_steps())))["steps"]
    assert (first["step"], first["gpu_events"], first["span_us"], first["compute_us"]) == (
        "ProfilerStep#1",
        3,
        210,
        100,
    )
    assert (second["gpu_events"], second["span_us"], second["idle_us"]) == (1, 100, 0)


def test_collectives_have_bytes_and_bus_bandwidth(tmp_path):
    (row,) = rank_figures(recorded(tmp_path, document(two_steps())))["collectives"]
    assert (row["kind"], row["count"], row["bytes"], row["group_sizes"]) == ("all-reduce", 1, 2000, [4])
    assert row["algorithm_gb_s"] == pytest.approx(2000 / 100_000)
    assert row["bus_gb_s"] == pytest.approx(1.5 * 2000 / 100_000)  # 2 (n - 1) / n of four ranks
    assert (row["union_us"], row["pct_of_span"], row["overlap_pct"]) == (100, 25, 50)


def test_two_at_a_time_count_once(tmp_path):
    gather, scatter = "ncclDevKernel_AllGather_RING_LL(x)", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)"
    events = [on_gpu(GEMM, 0, 100, 1), on_gpu(gather, 50, 100, 2, stream=20), on_gpu(gather, 100, 50, 3, stream=21),
              on_gpu(scatter, 180, 20, 4, stream=20)]  # fmt: skip
    gathers, scatters = rank_figures(recorded(tmp_path, document(events)))["collectives"]
    assert (gathers["kind"], gathers["sum_us"], gathers["union_us"]) == ("all-gather", 150, 100)
    assert (gathers["pct_of_span"], gathers["overlap_pct"]) == (50, 50)
    assert (scatters["kind"], scatters["pct_of_span"], scatters["overlap_pct"]) == ("reduce-scatter", 10, 0)


def test_tensor_cores_are_yes_no_or_unknown(tmp_path):
    events = [on_gpu(GEMM, 0, 60, 1), on_gpu(ADD, 60, 30, 2), on_gpu("my_own_kernel", 90, 10, 3)]
    cores = rank_figures(recorded(tmp_path, document(events)))["tensor_cores"]
    assert (cores["yes_pct"], cores["no_pct"], cores["unknown_pct"]) == (60, 30, 10)
    assert cores["old_list_pct"] == 60


@pytest.mark.parametrize("rule", tensor_core_rules(), ids=lambda rule: rule.evidence[:40])
def test_each_rule_knows_its_example(rule):
    assert kernel(rule.example).tensor_cores == rule.verdict


def test_a_list_of_2021_misses_blackwell():
    name = "nvjet_sm100_tst_64x32_64x16_2x1_2cta_h_bz_splitK_TNT"
    assert kernel(name).tensor_cores == "yes"
    assert not on_old_list(name)


def test_communication_under_another_name_is_reclassified(tmp_path):
    events = [on_gpu(GEMM, 0, 50, 1), on_gpu("multimem_all_reduce_kernel<c10::BFloat16>", 50, 50, 2)]
    figures = rank_figures(recorded(tmp_path, document(events)))
    assert figures["all_events"]["comm_us"] == 0
    assert figures["classified"]["comm_us"] == 50
    assert figures["classified"]["renamed"] == ["multimem_all_reduce_kernel<c10::BFloat16>"]


def test_nanoseconds_survive_large_times(tmp_path):
    events = json.dumps([on_gpu(GEMM, 0, 0, 1), on_gpu(ADD, 0, 0, 2)])
    events = events.replace('"ts": 0, "dur": 0', '"ts": 1700000000000000.123, "dur": 0.002', 1)
    events = events.replace('"ts": 0, "dur": 0', '"ts": 1700000000000001.124, "dur": 1', 1)
    path = tmp_path / "a.json"
    path.write_text(events)
    figures = rank_figures(read_trace(trace_files([str(path)])[0]))["all_events"]
    assert figures["span_us"] == 2.001
    assert figures["idle_us"] == 0.999


def test_hta_rounds_fractions_and_can_end_in_its_assertion(tmp_path):
    rounded = rank_figures(recorded(tmp_path, document([on_gpu(GEMM, 0.5, 9.0, 1)])))["hta"]
    assert rounded["kernel_time_us"] == 8
    short = rank_figures(recorded(tmp_path, document([on_gpu(GEMM, 0, 10, 1), on_gpu(COPY, 20.2, 0.5, 2)])))["hta"]
    assert short["non_compute_us"] == 0.5
    assert "AssertionError" in short["rounding"]


def test_old_kineto(tmp_path):
    events = two_steps()
    old = {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "cuda_runtime": "Runtime", "user_annotation": "Operator"}
    for event in events:
        event["cat"] = old[event["cat"]]
    figures = rank_figures(recorded(tmp_path, {"schemaVersion": 1, "traceEvents": events}))
    assert figures["all_events"]["idle_us"] == 140
    assert figures["hta"]["gpu_events_kept"] == 3


def test_steps_copied_to_a_gpu_track_count_as_hta_counts_them(tmp_path):
    copy = {**step(2, 280, 100), "cat": "gpu_user_annotation"}
    figures = rank_figures(recorded(tmp_path, document([*two_steps(), copy, step(3, 600, 10)])))
    assert figures["all_events"]["n_steps"] == 3
    assert figures["hta"]["gpu_events_kept"] == 4  # all launched before step 3


def test_ranks_are_matched_and_the_late_one_is_named(tmp_path):
    recordings = []
    for rank, arrival in enumerate((100, 100, 180)):  # rank 2 arrives late: the others wait for it
        events = [on_gpu(ALL_REDUCE, 300 * i + arrival, 200 - arrival, i, stream=20) for i in range(3)]
        recordings.append(recorded(tmp_path, document(events, rank=rank), f"r{rank}.json"))
    answer = analyse(recordings)
    assert list(answer["ranks"]) == ["0", "1", "2"]
    together = answer["across"]
    assert (together["matched_collectives"], together["transfer_us"]) == (3, 60)
    assert together["ranks"]["0"] == {"communication_us": 300, "waiting_us": 240}
    assert together["stragglers"] == ["2"]
    assert together["worst_skew_us"] == 80


@pytest.mark.parametrize("named", ["by ranks", "by number"])
def test_a_late_rank_of_a_group_is_named_though_other_groups_do_not_wait(tmp_path, named):
    """Ranks 0 to 2 and 3 to 5 are groups of their own; 4 is late by 80 µs of 100, the others arrive together."""
    recordings = []
    for rank in (0, 1, 2, 3, 4):  # the trace of rank 5 is missing
        group = rank // 3
        stated = {"Process Group Name": "tp", "Process Group Ranks": f"[{3 * group}, {3 * group + 1}, {3 * group + 2}]"}
        arrival = 180 if rank == 4 else 100
        said = stated if named == "by ranks" else {"Process Group Name": str(group)}
        said |= {"Collective name": "allreduce", "Group size": 3}
        events = [on_gpu(ALL_REDUCE, 300 * i + arrival, 200 - arrival, i, stream=20, **said, Seq=i) for i in range(3)]
        recordings.append(recorded(tmp_path, document(events, rank=rank), f"r{rank}.json"))
    together = analyse(recordings)["across"]
    assert (together["matched_collectives"], together["unmatched_collectives"]) == (6, 0)
    assert together["stragglers"] == ["4"]
    assert together["transfer_us"] == 3 * 100 + 3 * 20
    assert [one["waiting_us"] for one in together["ranks"].values()] == [0, 0, 0, 240, 0]


def test_two_groups_of_one_name_are_not_matched_with_each_other(tmp_path):
    said = {"Collective name": "allreduce", "Group size": 2, "Process Group Name": "tp"}
    events = [on_gpu(ALL_REDUCE, 100, 100, 1, stream=20, **said, Seq=1)]
    assert (
        analyse([recorded(tmp_path, document(events, rank=rank), f"r{rank}.json") for rank in range(4)])["across"]
        is None
    )


def test_a_second_trace_of_a_rank_does_not_hide_who_is_late(tmp_path):
    said = {"Collective name": "allreduce", "Group size": 3, "Process Group Name": "dp"}
    recordings = []
    for place, (rank, arrival) in enumerate(((0, 100), (1, 100), (2, 180), (2, 180))):
        events = [on_gpu(ALL_REDUCE, 300 * i + arrival, 200 - arrival, i, stream=20, **said, Seq=i) for i in range(3)]
        recordings.append(recorded(tmp_path, document(events, rank=rank), f"r{place}.json"))
    assert analyse(recordings)["across"]["stragglers"] == ["2"]


def test_without_msgspec_the_same_figures(tmp_path, monkeypatch):
    value = document([*two_steps(), on_gpu("x}, {y", 510.125, 1.5, 9)])
    fast = rank_figures(recorded(tmp_path, value))
    monkeypatch.setattr("vramwise.utilization.profiler.stream.fast_decoders", lambda: ())
    assert rank_figures(recorded(tmp_path, value)) == fast
    assert len(decode.fast_decoders()) == 2


def brute_force(events):
    """The decomposition of whole microseconds, one microsecond after the other."""
    kinds = {GEMM: 0, ALL_REDUCE: 1, COPY: 2}
    first = min(start for _, start, _ in events)
    last = max(start + duration for _, start, duration in events)
    parts = {"compute": 0, "exposed_comm": 0, "exposed_memory": 0, "idle": 0, "comm_compute_overlap": 0}
    for now in range(first, last):
        running = {kinds[name] for name, start, duration in events if start <= now < start + duration}
        parts["comm_compute_overlap"] += {0, 1} <= running
        parts[("compute", "exposed_comm", "exposed_memory")[min(running)] if running else "idle"] += 1
    return parts


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([GEMM, ALL_REDUCE, COPY]), st.integers(0, 60), st.integers(0, 20)), min_size=1)
)
def test_decomposition_equals_brute_force(tmp_path_factory, events):
    traced = [on_gpu(name, start, duration, i, stream=i % 3) for i, (name, start, duration) in enumerate(events)]
    figures = rank_figures(recorded(tmp_path_factory.mktemp("trace"), document(traced)))["all_events"]
    for part, expected in brute_force(events).items():
        assert figures[f"{part}_us"] == expected, part
    parts = ("compute", "exposed_comm", "exposed_memory", "other", "idle")
    assert sum(figures[f"{part}_us"] for part in parts) == figures["span_us"]


@pytest.mark.parametrize(
    ("written", "expected"),
    [("12", 12_000), ("0.5", 500), ("1700000000000000.123", 1_700_000_000_000_000_123), ("1e3", 1_000_000),
     ("-2.5", -2_500), ("0.00049", 0), ("3.1415926", 3_142),
     ("3.14", 3_140), ("3.141", 3_141), ("3.1415", 3_142), ("12.3454", 12_345)],
)  # fmt: skip
def test_times(written, expected):
    assert nanoseconds(written.encode()) == expected


@pytest.mark.parametrize("fast", [True, False])
def test_achieved_rate_of_products_with_shapes(tmp_path, monkeypatch, fast):
    if not fast:
        monkeypatch.setattr("vramwise.utilization.profiler.stream.fast_decoders", lambda: ())

    def operator(name, number, dims):
        said = {"External id": number, "Input Dims": dims}
        return {"ph": "X", "cat": "cpu_op", "name": name, "ts": 0, "dur": 1, "args": said}

    events = [
        operator("aten::mm", 1, [[100, 200], [200, 300]]),
        operator("aten::baddbmm", 2, [[5], [4, 10, 20], [4, 20, 30], []]),
        operator("aten::linear", 3, [[100, 200], [200, 300]]),
        operator("aten::mm", 4, [[100, 7], [200, 300]]),
        operator("aten::mm", 5, [[100, 200], [200, 300]]),
        *(on_gpu(GEMM, 10 * i, 6, i, **{"External id": i}) for i in range(1, 5)),
    ]
    products = rank_figures(recorded(tmp_path, document(events)))["products"]
    flops = 2 * 100 * 200 * 300 + 2 * 4 * 10 * 20 * 30  # the third is a wrapper, the fourth no product, the fifth idle
    assert products == {"count": 2, "flops": flops, "kernel_us": 12, "tflops": round(flops / 12e6, 3)}


def test_without_shapes_there_is_no_rate(tmp_path):
    assert rank_figures(recorded(tmp_path, document(two_steps())))["products"] is None


def test_hta_tables_have_its_names(tmp_path, capsys):
    """Without the last step: compute 100-200, all-reduce 150-250, a copy 300-310, launched at 290."""
    path = tmp_path / "t.pt.trace.json"
    path.write_text(json.dumps(document(two_steps())))
    assert main(["profile", str(path), "--compat", "hta", "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["ranks"]["0"]
    assert tables["temporal_breakdown"] == {
        "idle_time(us)": 50, "compute_time(us)": 100, "non_compute_time(us)": 60, "kernel_time(us)": 210,
        "idle_time_pctg": 23.81, "compute_time_pctg": 47.62, "non_compute_time_pctg": 28.57,
    }  # fmt: skip
    assert {each["kernel_type"]: each["sum"] for each in tables["kernel_breakdown"]} == {
        "COMPUTATION": 50, "COMMUNICATION": 50, "COMPUTATION overlapping COMMUNICATION": 50, "MEMORY": 10,
    }  # fmt: skip
    waits = {(each["stream"], each["idle_category"]): each["idle_time"] for each in tables["idle_time_breakdown"]}
    assert waits[7, "host_wait"] == 100
    assert main(["profile", str(path), "--compat", "hta"]) == 0
    assert "non_compute_time_pctg" in capsys.readouterr().out


def test_a_mask_that_takes_every_event_makes_no_second_copy(tmp_path):
    gpu = recorded(tmp_path, document(two_steps())).gpu
    assert gpu.where(gpu.start >= 0) is gpu
    first = gpu.where(gpu.start == gpu.start.min())
    assert 0 < len(first) < len(gpu)
    assert first.start.tolist() == [int(gpu.start.min())] * len(first)


def test_reading_searches_no_events_for_cycles_and_leaves_the_search_as_it_was(tmp_path):
    import gc

    assert gc.isenabled()
    recorded(tmp_path, document(two_steps()))
    assert gc.isenabled()
    gc.disable()
    try:
        recorded(tmp_path, document(two_steps()))
        assert not gc.isenabled()
    finally:
        gc.enable()
