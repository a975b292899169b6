"""Tools' text, written for these tests in the forms that the tools print."""

from __future__ import annotations

import json

import pytest

from vramwise.cli.main import main
from vramwise.errors import SourceError
from vramwise.hardware.machine.exporter import read_exporter
from vramwise.hardware.machine.nccl_tests import read_nccl_test
from vramwise.hardware.machine.network import Counters, rates, read_net_dev
from vramwise.hardware.machine.nvidia_smi import read_nvidia_smi, read_nvidia_smi_query
from vramwise.hardware.machine.reports import read_collect_env, read_ds_report
from vramwise.hardware.machine.topology import explained, read_topology
from vramwise.hardware.machine.versions import Software, conflicts, unmet_requirements
from vramwise.units import MIB

SMI = """
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 560.35.05              Driver Version: 560.35.05      CUDA Version: 12.6     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:04:00.0 Off |                    0 |
| N/A   31C    P0             70W /  700W |    1034MiB /  81559MiB |     97%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA GeForce RTX 4090        Off |   00000000:05:00.0 Off |                  Off |
|  0%   25C    P8             17W /  450W |       1MiB /  24564MiB |      0%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A      4242      C   /usr/bin/python3                             1024MiB |
+-----------------------------------------------------------------------------------------+
"""
QUERY = """
==============NVSMI LOG==============

Timestamp                                 : Thu Jan  1 00:00:00 2026
Driver Version                            : 560.35.05
CUDA Version                              : 12.6

Attached GPUs                             : 1
GPU 00000000:04:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    PCI
        Bus                               : 0x04
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 5
                Device Max                : 5
            Link Width
                Max                       : 16x
                Current                   : 8x
    FB Memory Usage
        Total                             : 81559 MiB
        Reserved                          : 551 MiB
        Used                              : 1034 MiB
        Free                              : 79975 MiB
    BAR1 Memory Usage
        Total                             : 131072 MiB
        Used                              : 1 MiB
    Utilization
        Gpu                               : 97 %
        Memory                            : 12 %
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    Temperature
        GPU Current Temp                  : 31 C
    GPU Power Readings
        Power Draw                        : 70.86 W
        Current Power Limit               : 700.00 W
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4242
            Type                          : C
            Name                          : /usr/bin/python3
            Used GPU Memory               : 1024 MiB
        Process ID                        : 4343
            Type                          : C
            Name                          : other
            Used GPU Memory               : 10 MiB
"""
TOPOLOGY = """
        GPU0    GPU1    GPU2    GPU3    NIC0    CPU Affinity    NUMA Affinity
GPU0     X      NV4     SYS     SYS     PIX     0-15    0
GPU1    NV4      X      SYS     SYS     PHB     0-15    0
GPU2    SYS     SYS      X      NV4     SYS     16-31   1
GPU3    SYS     SYS     NV4      X      SYS     16-31   1
NIC0    PIX     PHB     SYS     SYS      X
"""
NCCL = """
[1,0]<stdout>:# Collective test starting: all_gather_perf
[1,0]<stdout>:#  Rank  0 Group  0 Pid 1 on a device 0
[1,0]<stdout>:#  Rank  3 Group  0 Pid 2 on a device 3
[1,0]<stdout>:  1048576  262144  float  none  -1  100.0  10.49  7.86  0  110.0  9.53  7.15  0
[1,0]<stdout>:  536870912  134217728  float  none  -1  5000.0  107.37  80.53  0  5100.0  105.27  78.95  0
[1,0]<stdout>:# Avg bus bandwidth    : 43.6
"""
DS_REPORT = """
\x1b[92m[WARNING]\x1b[0m something
ninja .................. \x1b[92m[OKAY]\x1b[0m
fused_adam ............. \x1b[93m[NO]\x1b[0m ....... \x1b[92m[OKAY]\x1b[0m
ld: cannot find -lsomething
async_io ............... [NO] ....... [NO]
torch version .................... 2.7.1+cu118
deepspeed info ................... 0.17.5, unknown, unknown
torch cuda version ............... 11.8
nvcc version ..................... 12.4
shared memory (/dev/shm) size .... 0.06 GB
"""
COLLECT_ENV = """Collecting environment information...
PyTorch version: 2.7.1+cu128
CUDA used to build PyTorch: 12.8
Is CUDA available: True
CUDA runtime version: Could not collect
GPU models and configuration:
GPU 0: NVIDIA A100-SXM4-80GB
GPU 1: NVIDIA A100-SXM4-80GB

Nvidia driver version: 535.54.03
Versions of relevant libraries:
[pip3] numpy==2.2.0
[pip3] torch==2.7.1+cu128
[conda] Could not collect
"""
EXPORTER = """# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization
DCGM_FI_DEV_GPU_UTIL{gpu="0",modelName="NVIDIA H100 80GB HBM3"} 97
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0"} 0.312
node_load1 3.1
DCGM_FI_DEV_FB_USED{gpu="1"} NaN
"""
NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
  lo:  1000  1  0  0  0  0  0  0  1000  1  0  0  0  0  0  0
  eth0:5000  2  0  0  0  0  0  0  700  3  0  0  0  0  0  0
"""


def test_table():
    said = read_nvidia_smi(SMI)
    first, second = said.gpus
    assert (said.driver, said.cuda) == ("560.35.05", "12.6")
    assert (first.name, first.total_bytes, first.used_bytes) == ("NVIDIA H100 80GB HBM3", 81559 * MIB, 1034 * MIB)
    assert (first.utilization_pct, first.temperature_c, first.power_w, first.power_limit_w) == (97, 31, 70, 700)
    assert second.ecc == "disabled"
    assert (first.ecc, first.mig, first.bus_id) == ("0 uncorrected", "disabled", "00000000:04:00.0")
    assert [(process.pid, process.used_bytes) for process in first.processes] == [(4242, 1024 * MIB)]
    assert (second.name, second.processes) == ("NVIDIA GeForce RTX 4090", ())


def test_query():
    (gpu,) = read_nvidia_smi_query(QUERY).gpus
    assert (gpu.total_bytes, gpu.reserved_bytes, gpu.free_bytes) == (81559 * MIB, 551 * MIB, 79975 * MIB)
    assert (gpu.pcie_generation, gpu.pcie_generation_max, gpu.pcie_width, gpu.pcie_width_max) == (5, 5, 8, 16)
    assert (gpu.ecc, gpu.mig, gpu.utilization_pct, gpu.memory_utilization_pct) == ("enabled", "disabled", 97, 12)
    assert [(each.pid, each.name, each.used_bytes) for each in gpu.processes] == [
        (4242, "/usr/bin/python3", 1024 * MIB),
        (4343, "other", 10 * MIB),
    ]


@pytest.mark.parametrize(
    "text", [TOPOLOGY, TOPOLOGY.replace("    ", "\t"), TOPOLOGY.replace("GPU0  ", "\x1b[4mGPU0\x1b[0m ", 1)]
)
def test_topology(text):
    matrix = read_topology(text)
    assert matrix.gpus == ("GPU0", "GPU1", "GPU2", "GPU3")
    assert matrix.link("GPU0", "GPU1") == "NV4"
    assert matrix.pairs() == {"SYS": 4, "NV4": 2}
    assert matrix.groups(2) == [(("GPU0", "GPU1"), "NV4"), (("GPU2", "GPU3"), "NV4")]
    assert matrix.nearest_nics("GPU1") == ("NIC0",)
    said = "\n".join(explained(matrix))
    assert "4 pairs cross sockets" in said
    assert "tensor parallel 4: 0+1+2+3 (SYS)" in said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "GPU3    SYS     SYS     NV4      X      SYS",
            "GPU3    SYS     SYS     NV4      X ",
            "row GPU3 has 4 links for 5",
        ),
        ("NIC0    PIX     PHB     SYS     SYS      X", "", "NIC0 has a column and no row"),
        ("GPU1    NV4", "GPU1    NV2", "one way"),
        ("GPU2    SYS     SYS      X      NV4", "GPU2    SYS     SYS     NV4      X ", "not X with itself"),
    ],
)
def test_mangled_topology_is_refused(old, new, said):
    with pytest.raises(SourceError, match="mangled matrix") as error:
        read_topology(TOPOLOGY.replace(old, new))
    assert said in str(error.value)


def test_many_gpus_are_grouped_in_time():
    """Four boards of eight, 2.6 million ways to choose the first group; interleaved, as no shortcut expects."""
    names = [f"GPU{i}" for i in range(32)]
    cells = (["X" if i == j else "NV18" if i % 4 == j % 4 else "SYS" for j in range(32)] for i in range(32))
    lines = [" ".join(names), *(f"{name} {' '.join(row)}" for name, row in zip(names, cells, strict=True))]
    group, slowest = read_topology("\n".join(lines)).groups(8)[1]
    assert (group, slowest) == (tuple(f"GPU{i}" for i in range(1, 32, 4)), "NV18")


def test_glued_cells_are_split():
    assert read_topology(TOPOLOGY.replace("SYS     SYS     PIX     0-15", "SYSSYS     PIX     0-15")).gpus


def test_virtual_machines_pcie_is_not_called_slow():
    said = "\n".join(explained(read_topology(
        "\tGPU0\tGPU1\tNIC0\tNIC1\nGPU0\tX\tNV18\tPHB\tPHB\nGPU1\tNV18\tX\tPHB\tPHB\n"
        "NIC0\tPHB\tPHB\tX\tPHB\nNIC1\tPHB\tPHB\tPHB\tX\n"
    )))  # fmt: skip
    assert "say nothing about speed" in said
    assert "nearest" not in said


def test_nccl():
    test = read_nccl_test(NCCL)
    assert (test.collective, test.ranks, test.avg_busbw) == ("all_gather", 4, 43.6)
    assert (test.best.size_bytes, test.best.out_busbw, test.best.in_busbw) == (536870912, 80.53, 78.95)
    assert test.notes == ()


def test_nccl_rows_are_checked():
    assert "GB/s, not 99" in read_nccl_test(NCCL.replace("107.37", "99   ")).notes[0]


def test_ds_report_and_its_conflicts():
    report = read_ds_report(DS_REPORT)
    assert report.ops == {"fused_adam": (False, True), "async_io": (False, False)}
    assert report.packages == {"torch": "2.7.1+cu118", "deepspeed": "0.17.5"}
    assert report.warnings == ("something",)
    found = conflicts(Software(torch_cuda=report.torch_cuda, nvcc=report.nvcc, shared_memory_gb=0.06))
    assert [text.split()[0] for text in found] == ["nvcc", "/dev/shm"]


def test_collect_env():
    report = read_collect_env(COLLECT_ENV)
    assert report.gpus == ("NVIDIA A100-SXM4-80GB",) * 2
    assert (report.torch_cuda, report.nvcc, report.driver) == ("12.8", None, "535.54.03")
    assert report.packages == {"numpy": "2.2.0", "torch": "2.7.1+cu128"}


def test_a_driver_that_is_too_old():
    (said,) = conflicts(Software(torch_cuda="13.0", driver_cuda="12.4"))
    assert "torch.cuda will not be available" in said
    assert conflicts(Software(torch_cuda="12.8", driver_cuda="12.4", nvcc="12.1")) == []


def test_unmet_requirements_are_the_packages_own(monkeypatch):
    pytest.importorskip("packaging")
    monkeypatch.setattr("importlib.metadata.requires", lambda name: ["numpy>=3; python_version > '3'", "other>=9"])
    assert unmet_requirements({"torch": "2.0", "numpy": "2.1"})[0].startswith("torch 2.0 requires numpy>=3")


def test_exporter():
    samples = read_exporter(EXPORTER)
    assert [(one.gpu, one.field, one.value, one.unit) for one in samples] == [
        ("0", "kernel resident", 97, "%"),
        ("0", "tensor pipe active", pytest.approx(31.2), "%"),
    ]


def test_network_counters():
    before = read_net_dev(NET_DEV)
    assert before["eth0"] == Counters(5000, 700)
    assert rates(before, {"eth0": Counters(7000, 100), "new": Counters(1, 1)}, 2.0) == {"eth0": (1000, 0)}


@pytest.mark.parametrize(
    "reader",
    [read_nvidia_smi, read_nvidia_smi_query, read_topology, read_nccl_test, read_ds_report, read_collect_env,
     read_exporter, read_net_dev],
)  # fmt: skip
@pytest.mark.parametrize("text", ["", "hello\nworld: 5", "GPU", "\x00\x01", "1 2 3 4 5 6 7 8", "X" * 5000])
def test_other_text_is_refused(reader, text):
    with pytest.raises(SourceError):
        reader(text)


def test_doctor_reads_several_tools_in_one_text(tmp_path, capsys):
    path = tmp_path / "paste.txt"
    path.write_text(SMI + TOPOLOGY + DS_REPORT + NCCL)
    assert main(["doctor", str(path)]) == 0
    printed = capsys.readouterr().out
    for words in ("h100-sxm-80gb", "flash-attention 3 yes", "tensor parallel 2: 0+1 (NV4)", "80.53 GB/s",
                  "extensions that compile", "not MFU", "async_io"):  # fmt: skip
        assert words in printed
    assert main(["doctor", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [gpu["catalog"]["id"] for gpu in answer["gpus"]] == ["h100-sxm-80gb", "rtx-4090"]
    assert answer["nccl"]["ranks"] == 4


def test_doctor_refuses_what_nobody_knows(tmp_path, capsys):
    path = tmp_path / "paste.txt"
    path.write_text("hello")
    assert main(["doctor", str(path)]) == 4
    assert "no output of a tool that is known" in capsys.readouterr().err
    path.write_text(TOPOLOGY.replace("GPU1    NV4", "GPU1    NV2"))
    assert main(["doctor", str(path)]) == 4
    assert "mangled matrix" in capsys.readouterr().err
    assert main(["doctor", str(tmp_path / "none")]) == 4
