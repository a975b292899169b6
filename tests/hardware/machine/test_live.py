"""This machine, with and without a driver; the driver is a stand-in that answers as NVML does."""

from __future__ import annotations

import csv
import json
import sys
from types import SimpleNamespace

import pytest

from vramwise.cli.main import main
from vramwise.hardware.machine import nvml
from vramwise.units import GIB


class NVMLError(Exception):
    pass


class Driver:
    """One H100; what an old driver would not know raises."""

    NVMLError = NVMLError

    def nvmlInit(self):
        pass

    def nvmlShutdown(self):
        pass

    def nvmlSystemGetDriverVersion(self):
        return b"560.35.05"

    def nvmlSystemGetCudaDriverVersion(self):
        return 12060

    def nvmlDeviceGetCount(self):
        return 1

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetName(self, handle):
        return "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(total=80 * GIB, used=GIB, free=79 * GIB)

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=100, memory=7)

    def nvmlDeviceGetCudaComputeCapability(self, handle):
        return 9, 0

    def nvmlDeviceGetNvLinkState(self, handle, link):
        if link > 3:
            raise NVMLError("invalid argument")
        return 1 if link < 2 else 0

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=42, usedGpuMemory=GIB)]

    def nvmlSystemGetProcessName(self, pid):
        return b"python"

    def __getattr__(self, name):
        def unknown(*_):
            raise NVMLError("not supported")

        return unknown


@pytest.fixture
def h100(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Driver())


@pytest.fixture
def no_driver(monkeypatch):
    monkeypatch.setattr(nvml, "_through_nvml", lambda: None)
    monkeypatch.setattr(nvml, "which", lambda _: None)


def test_facts_through_nvml(h100):
    machine = nvml.this_machine()
    (gpu,) = machine.gpus
    assert (machine.source, machine.driver, machine.cuda) == ("NVML", "560.35.05", "12.6")
    assert (gpu.used_bytes, gpu.utilization_pct, gpu.compute_capability, gpu.nvlinks_up) == (GIB, 100, "9.0", 2)
    assert (gpu.ecc, gpu.power_w, gpu.pcie_width) == (None, None, None)
    assert [(each.pid, each.name, each.used_bytes) for each in gpu.processes] == [(42, "python", GIB)]


def test_nvml_without_a_driver(monkeypatch):
    class NoDriver(Driver):
        def nvmlInit(self):
            raise NVMLError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", NoDriver())
    monkeypatch.setattr(nvml, "which", lambda _: None)
    assert nvml.this_machine() is None


def test_gpus_here(h100, capsys):
    assert main(["gpus", "--here"]) == 0
    printed = capsys.readouterr().out
    assert "h100-sxm-80gb" in printed
    assert "100 % of time" in printed
    assert main(["gpus", "--here", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["catalog"]["flash_attention_3"] == "yes"
    assert main(["gpus", "--here", "a100"]) == 2


def test_without_a_driver_it_says_what_it_can(no_driver, capsys):
    assert main(["gpus", "--here"]) == 1
    assert "no NVIDIA driver" in capsys.readouterr().err
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "no NVIDIA driver" in printed
    assert "host" in printed
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gpus"] == []


def test_watch_writes_csv(h100, tmp_path, capsys):
    metrics = tmp_path / "metrics.txt"
    metrics.write_text('DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0"} 0.25\n')
    path = tmp_path / "samples.csv"
    assert main(["watch", "--count", "2", "--interval", "0.01", "-o", str(path), "--exporter", str(metrics)]) == 0
    printed = capsys.readouterr().out
    assert "memory used 1.00 GiB" in printed
    assert "tensor pipe active 25 %" in printed
    assert "no share of peak" in printed
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    used = [row for row in rows if row["measure"] == "memory used"]
    assert [float(row["value"]) for row in used] == [GIB, GIB]
    assert {row["kind"] for row in rows} <= {"gpu", "network"}


def test_watch_refuses(no_driver, tmp_path, capsys):
    assert main(["watch", "--count", "1", "-o", "samples.txt"]) == 2
    assert main(["watch", "--interval", "0"]) == 2
    assert main(["watch", "--count", "1", "--interval", "0.01", "--exporter", str(tmp_path / "none")]) == 4
    capsys.readouterr()


def test_parquet_needs_pyarrow(no_driver, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["watch", "--count", "1", "--interval", "0.01", "-o", "samples.parquet"]) == 1
    assert "pip install vramwise[parquet]" in capsys.readouterr().err
