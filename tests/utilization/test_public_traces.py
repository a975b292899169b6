"""Public traces against Holistic Trace Analysis, the TensorBoard plugin and a second implementation's figures.

The traces are other people's and not part of this repository: these tests run where a folder of them lies beside the
checkout or VRAMWISE_TEST_DATA names one (traces/ with *.json.gz and expected/SET.json).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from vramwise.cli.main import main
from vramwise.utilization.profiler.analysis import analyse, rank_labels
from vramwise.utilization.profiler.collect import read_trace
from vramwise.utilization.profiler.files import trace_files
from vramwise.utilization.profiler.hta_tables import hta_tables

BESIDE = Path(__file__).parents[3] / "shared" / "data"
TRACES = Path(os.environ.get("VRAMWISE_TEST_DATA", BESIDE)) / "traces"
SETS = sorted(path.stem for path in (TRACES / "expected").glob("*.json")) if TRACES.is_dir() else []
TOLERANCE_US = 0.001
ROCM = "mi300_resnet_actckpt_rank0of8"

pytestmark = pytest.mark.skipif(not SETS, reason="the public traces are not on this machine")


@pytest.fixture(params=SETS or ["none"], scope="module")
def figures(request):
    expected = json.loads((TRACES / "expected" / f"{request.param}.json").read_text())
    single = TRACES / f"{request.param}.json.gz"
    paths = [str(single if single.exists() else TRACES / request.param)]
    return request.param, expected["ranks"], analyse([read_trace(file) for file in trace_files(paths)])["ranks"]


def test_every_event(figures):
    _, expected, found = figures
    assert sorted(found) == sorted(expected)
    for rank, stated in expected.items():
        for name, value in stated["all_events"].items():
            given = found[rank]["all_events"][name]
            if name.endswith("_us"):
                assert abs(given - value) <= TOLERANCE_US, name
            else:
                assert given == value, name


def test_hta(figures):
    _, expected, found = figures
    for rank, stated in expected.items():
        if stated["hta_0.5.0"] is None:
            assert found[rank]["hta"] is None
            continue
        for name, value in stated["hta_0.5.0"].items():
            if name.endswith("_us"):
                assert abs(found[rank]["hta"][name] - value) <= TOLERANCE_US, name
            elif name.endswith("_pct") or name in ("overlap_pct_of_comm", "gpu_events_kept"):
                assert found[rank]["hta"][name] == value, name


def test_hta_tables(figures):
    """HTA's whole output, but where it itself ends in an assertion and was run without its rounding."""
    name, _, _ = figures
    single = TRACES / f"{name}.json.gz"
    hta = json.loads((TRACES / "expected" / "hta" / f"{name}.json").read_text())["results"]
    for recording in map(read_trace, trace_files([str(single if single.exists() else TRACES / name)])):
        tables = hta_tables(recording)
        if tables is None or ("none" in tables["rounding"] and "AssertionError" in tables["rounding"]):
            continue
        rank = int(rank_labels([recording])[0])
        (row,) = (row for row in hta["temporal_breakdown"] if row["rank"] == rank)
        assert {key: row[key] for key in tables["temporal_breakdown"]} == tables["temporal_breakdown"]
        stated = {(each["stream"], each["idle_category"]): each for each in hta[f"idle_time_breakdown_rank{rank}"][0]}
        for each in tables["idle_time_breakdown"]:
            if each["idle_time"]:
                assert stated[each["stream"], each["idle_category"]]["idle_time"] == each["idle_time"]
        if len(hta["temporal_breakdown"]) == 1:  # HTA adds the ranks' kernel types up
            types = {each["kernel_type"]: (each["sum"], each["percentage"]) for each in tables["kernel_breakdown"]}
            stated = {each["kernel_type"]: (each["sum"], each["percentage"])
                      for each in hta["kernel_breakdown_with_memory"][0]}  # fmt: skip
            assert types == stated


def test_tensorboard_plugin(figures):
    name, expected, found = figures
    for rank, stated in expected.items():
        plugin = stated.get("torch_tb_profiler_0.4.3")
        if plugin is None:
            assert "tensorboard" not in found[rank]
            continue
        # the plugin adds up rounded figures, and links ROCm's launches otherwise
        tolerance = 1.0 if name == ROCM else 0.011
        for key in ("gpu_utilization_pct", "sm_efficiency_pct", "occupancy_pct"):
            given = found[rank]["tensorboard"][key]
            assert given == (None if plugin[key] is None else pytest.approx(plugin[key], abs=tolerance)), key
        listed = stated["tensor_core_kernel_time_pct"]["tb_plugin_name_list"]
        assert found[rank]["tensor_cores"]["old_list_pct"] == listed


def test_tensor_core_names_are_known(figures):
    _, expected, found = figures
    for rank in expected:
        if found[rank]["hta"] is not None:
            assert found[rank]["tensor_cores"]["unknown_pct"] < 5


def test_identities(figures):
    _, expected, found = figures
    for rank in expected:
        if found[rank]["hta"] is None:
            continue
        for name in ("all_events", "classified"):
            every = found[rank][name]
            parts = ("compute", "exposed_comm", "exposed_memory", "other", "idle")
            assert sum(every[f"{part}_us"] for part in parts) == pytest.approx(every["span_us"], abs=TOLERANCE_US)
        causes = found[rank]["idle_causes"]
        parts = ("cpu_late", "launch_latency", "waiting", "unknown")
        assert sum(causes[f"{part}_us"] for part in parts) == pytest.approx(causes["idle_us"], abs=TOLERANCE_US)


@pytest.mark.parametrize("trace", ["v100_allreduce2020_rank1of2.json.gz", "h100_qwen05b_infer.json.gz", "sampled128"])
def test_the_critical_path_of_a_trace_is_that_of_its_tables(tmp_path, trace, capsys):
    pytest.importorskip("duckdb")
    flags = ["--critical-path", "--json"]
    assert main(["profile", str(TRACES / trace), *flags]) == 0
    by_trace = json.loads(capsys.readouterr().out)["critical_path"]
    assert main(["profile", str(TRACES / trace), "-o", str(tmp_path / "out"), *flags]) == 0
    assert json.loads(capsys.readouterr().out)["critical_path"] == by_trace
    kept = sum(each.stat().st_size for each in (tmp_path / "out").rglob("*.parquet"))
    assert kept < 400_000  # some kilobytes for each megabyte: the first is 53.7 MB
