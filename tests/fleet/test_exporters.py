"""AMD's exporter under a site's prefix, and cards without profiling counters beside others, on a real Prometheus."""

from __future__ import annotations

import json
import subprocess

import pytest
from made_fleet import HOUR, START
from real_prometheus import program, prometheus

from vramwise.cli.main import main

HOURS = range(1, 13)
MIB = 2**20
AMD = {
    "amd_gpu_gfx_activity": 40, "amd_gpu_prof_sm_active": 10, "amd_gpu_prof_tensor_active_percent": 25,
    "amd_gpu_umc_activity": 30, "amd_gpu_used_vram": 50_000, "amd_gpu_total_vram": 196_592,
    "amd_gpu_package_power": 500,
}  # fmt: skip
MI300X = 'gpu_id="{}",hostname="a",card_series="AMD Instinct MI300X",job_id="12",job_user="someone",job_partition="p"'
T4 = 'gpu="0",UUID="GPU-t4",modelName="Tesla T4",hostname="b",hpc_job="t4"'
L4 = 'gpu="0",UUID="GPU-l4",modelName="NVIDIA L4",hostname="c",hpc_job="l4"'
NVIDIA = [
    ("DCGM_FI_DEV_GPU_UTIL", T4, 30), ("DCGM_FI_DEV_FB_USED", T4, 9_000), ("DCGM_FI_DEV_GPU_UTIL", L4, 100),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", L4, 0.6), ("DCGM_FI_PROF_SM_ACTIVE", L4, 0.5),
]  # fmt: skip


def lines():
    for name, value in AMD.items():
        yield f"# TYPE {name} gauge"
        for gpu in range(2):
            yield from (f"{name}{{{MI300X.format(gpu)}}} {value} {START + hour * HOUR}" for hour in HOURS)
    yield "# TYPE amd_gpu_energy_consumed gauge"
    for gpu in range(2):
        for hour in HOURS:
            joules = 500 * HOUR * hour
            yield f"amd_gpu_energy_consumed{{{MI300X.format(gpu)}}} {joules}e6 {START + hour * HOUR}"
    for name in dict.fromkeys(name for name, _, _ in NVIDIA):
        yield f"# TYPE {name} gauge"
        for metric, labels, value in NVIDIA:
            if metric == name:
                yield from (f"{name}{{{labels}}} {value} {START + hour * HOUR}" for hour in HOURS)
    yield "# EOF"


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("amd")
    (folder / "half-a-day.om").write_text("\n".join(lines()) + "\n")
    words = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", "-q", str(folder / "half-a-day.om")]
    subprocess.run([*words, str(folder / "tsdb")], check=True, timeout=600, capture_output=True)
    with prometheus(folder) as address:
        from contextlib import redirect_stdout
        from io import StringIO

        out = StringIO()
        with redirect_stdout(out):
            words = ["--since", "12h", "--until", "2026-01-05T12:00", "--step", "1h", "--json"]
            assert main(["fleet", "--prometheus", address, *words]) == 0
        return json.loads(out.getvalue())


def test_amds_units_and_labels(answer):
    (job,) = (job for job in answer["jobs"] if job["id"] == "12")
    assert (job["gpu"], job["gpus"], job["user"], job["gpu_hours"]) == ("mi300x", 2, "someone", 24)
    assert (job["peak_bytes"], job["card_bytes"]) == (50_000 * MIB, 196_592 * MIB)
    assert [job[name] for name in ("engine_active", "tensor_active", "dram_active")] == pytest.approx([0.4, 0.25, 0.3])
    assert job["energy_j"] == pytest.approx(2 * 500 * HOUR * 11)  # from the first sample to the last


def test_what_amds_counters_do_not_tell_is_unknown(answer):
    (job,) = (job for job in answer["jobs"] if job["id"] == "12")
    assert (job["sm_active"], job["communication_gpu_hours"]) == (None, None)
    assert job["launch_bound_gpu_hours"] == pytest.approx(24 * 0.6)
    assert any(note.startswith("AMD device-metrics-exporter does not say how much") for note in answer["notes"])


def test_a_card_without_profiling_counters_stands_beside_one_with_them(answer):
    found = {job["id"]: job for job in answer["jobs"]}
    assert (found["t4"]["gpu_hours"], found["t4"]["engine_active"]) == (12, pytest.approx(0.3))
    assert found["t4"]["sm_active"] is None
    assert (found["l4"]["engine_active"], found["l4"]["sm_active"]) == (pytest.approx(0.6), pytest.approx(0.5))
    assert found["l4"]["wasted_gpu_hours"] == pytest.approx(12 * 0.5)
