"""The real NVML bindings on a stand-in for the driver's library, through the commands in processes of their own."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from vramwise.units import GIB

pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
COMPILER = which("cc") or which("gcc")
pytestmark = pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="needs a C compiler on Linux")


@pytest.fixture(scope="module")
def vramwise(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("nvml_stand_in.c")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-w", "-o", str(library), str(source)], check=True)
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "vramwise", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=1800).stdout

    return run


def test_gpus_here(vramwise):
    new, old = json.loads(vramwise("gpus", "--here", "--json"))
    assert (new["name"], new["total_bytes"], new["used_bytes"]) == ("NVIDIA H100 80GB HBM3", 80 * GIB, 3 * GIB)
    assert (new["utilization_pct"], new["ecc"], new["mig"], new["power_w"]) == (97, "enabled", "disabled", 350.5)
    assert (new["nvlinks_up"], new["compute_capability"], new["pcie_width"]) == (18, "9.0", 16)
    assert new["processes"] == [{"pid": 4242, "name": "python", "used_bytes": 2 * GIB}]
    assert (old["utilization_pct"], old["ecc"], old["mig"], old["nvlinks_up"]) == (None, None, None, 4)


def test_doctor(vramwise):
    printed = vramwise("doctor")
    assert "driver 580.65.06 · CUDA up to 13.0   (by NVML)" in printed
    assert "process 4242 python: 2.00 GiB" in printed
    assert "1: PCIe has 8 of 16 lanes" in printed
    assert "gen 1/3" in printed


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_watch_writes_samples(vramwise, tmp_path, suffix):
    path = tmp_path / f"samples.{suffix}"
    if suffix == "parquet":
        pytest.importorskip("pyarrow", reason="needs pyarrow")
    assert "kernel resident 97 %" in vramwise("watch", "--count", "2", "--interval", "0.01", "-o", str(path))
    if suffix == "parquet":
        from pyarrow import parquet

        rows = parquet.read_table(path).to_pylist()
    else:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
    used = [row for row in rows if (row["measure"], row["name"]) == ("memory used", "1")]
    assert [float(row["value"]) for row in used] == [3 * GIB, 3 * GIB]
