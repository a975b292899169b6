"""Text of AMD's tools, `nvlink -s` and `topo -p2p`, written for these tests in the forms that the tools print."""

from __future__ import annotations

import json

import pytest

from vramwise.cli.main import main
from vramwise.errors import SourceError
from vramwise.hardware.machine import peer_access
from vramwise.hardware.machine.amd_tools import read_amd_smi, read_rocm_smi
from vramwise.hardware.machine.exporter import read_exporter
from vramwise.hardware.machine.nvidia_smi_csv import read_nvidia_smi_csv
from vramwise.hardware.machine.nvlink_status import explained, read_nvlink_status
from vramwise.hardware.machine.topology import read_amd_topology, read_topology
from vramwise.units import GIB, MIB

AMD_SMI = """
+------------------------------------------------------------------------------+
| AMD-SMI 26.1.0+5df6c765      amdgpu version: 6.16.6   ROCm version: 7.1.0    |
| VBIOS version: 022.040.003.043.000001                                        |
| Platform: Linux Baremetal                                                    |
|-------------------------------------+----------------------------------------|
| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |
| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |
|=====================================+========================================|
| 0000:05:00.0    AMD Instinct MI300X | 3 %      45 °C   0           640/750 W |
|   0       0       7        SPX/NPS1 | 100 %      N/A        180283/196592 MB |
|-------------------------------------+----------------------------------------|
| 0000:2f:00.0 ...Radeon AI PRO R9700 | 0 %      43 °C   0            10/300 W |
|   1       1     N/A             N/A | 1 %      0.0 %             57/32624 MB |
+-------------------------------------+----------------------------------------+
"""
AMD_SECTIONS = """
GPU: 0
    ASIC:
        MARKET_NAME: AMD Instinct MI300X
        TARGET_GRAPHICS_VERSION: gfx942
    BUS:
        BDF: 0000:05:00.0
        MAX_PCIE_WIDTH: 16
        MAX_PCIE_SPEED: 32 GT/s
    VRAM:
        TYPE: HBM
        SIZE: 196592 MB
GPU: 0
    USAGE:
        GFX_ACTIVITY: 97 %
        UMC_ACTIVITY: 12 %
    POWER:
        SOCKET_POWER: 640 W
    TEMPERATURE:
        HOTSPOT: 61 °C
    PCIE:
        WIDTH: 8
        SPEED: 16 GT/s
    MEM_USAGE:
        TOTAL_VRAM: 196592 MB
        USED_VRAM: 283 MB
        FREE_VRAM: 196309 MB
"""
ROCM_FACTS = """
============================ ROCm System Management Interface ============================
Driver version: 6.10.5
GPU[0]\t\t: Card Series: \t\tAMD Instinct MI250X
GPU[0]\t\t: GFX Version: \t\tgfx90a
GPU[0]\t\t: VRAM Total Memory (B): 68702699520
GPU[0]\t\t: VRAM Total Used Memory (B): 10960896
GPU[0]\t\t: GPU use (%): 7
GPU[0]\t\t: Average Graphics Package Power (W): 94.0
GPU[0]\t\t: Temperature (Sensor junction) (C): 48.0
================================== End of ROCm SMI Log ===================================
"""
ROCM_TABLES = {
    "new": """
Device  Node  IDs              Temp        Power     Partitions          SCLK    MCLK    Fan  Perf  PwrCap  VRAM%  GPU%
              (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)
========================================================================================================================
0       2     0x74a1,   28851  45.0°C      140.0W    NPS1, SPX, 0        132Mhz  900Mhz  0%   auto  750.0W  31%    99%
1       3     0x74a1,   51499  42.0°C      138.0W    NPS1, SPX, 0        132Mhz  900Mhz  0%   auto  750.0W  0%     0%
""",
    "old": """
GPU  Temp (DieEdge)  AvgPwr  SCLK     MCLK     Fan   Perf  PwrCap  VRAM%  GPU%
0    45.0c           140.0W   925Mhz   1200Mhz  0%    auto  750.0W   31%   99%
""",
}
NVLINKS = """
GPU 0: NVIDIA H100 PCIe (UUID: GPU-00000000-0000-0000-0000-000000000001)
\t Link 0: 26.562 GB/s
\t Link 1: 26.562 GB/s
\t Link 2: <inactive>
GPU 1: NVIDIA H100 PCIe (UUID: GPU-00000000-0000-0000-0000-000000000002)
\t Link 0: 26.562 GB/s
\t Link 1: <inactive>
\t Link 2: <inactive>
"""
PEERS = """
 \tGPU0\tGPU1\tGPU2\t
 GPU0\tX\tOK\tCNS\t
 GPU1\tOK\tX\tCNS\t
 GPU2\tCNS\tCNS\tX\t

Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
"""
TOPOLOGY = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tNV4\t0-15\nGPU1\tNV4\tX\t0-15\n"


def test_amd_smi_table():
    facts = read_amd_smi(AMD_SMI)
    first, second = facts.gpus
    assert (facts.driver, facts.notes[0]) == ("6.16.6", "ROCm 7.1.0")
    assert (first.name, first.total_bytes, first.used_bytes) == ("AMD Instinct MI300X", 196592 * MIB, 180283 * MIB)
    assert (first.utilization_pct, first.power_w, first.power_limit_w, first.temperature_c) == (100, 640, 750, 45)
    assert (second.name, second.utilization_pct, second.bus_id) == ("Radeon AI PRO R9700", 1, "0000:2f:00.0")


def test_amd_smi_sections():
    (gpu,) = read_amd_smi(AMD_SECTIONS).gpus
    assert (gpu.name, gpu.compute_capability, gpu.free_bytes) == ("AMD Instinct MI300X", "gfx942", 196309 * MIB)
    assert (gpu.pcie_generation, gpu.pcie_generation_max, gpu.pcie_width, gpu.pcie_width_max) == (4, 5, 8, 16)
    assert (gpu.utilization_pct, gpu.memory_utilization_pct, gpu.power_w, gpu.temperature_c) == (97, 12, 640, 61)


def test_rocm_smi_reports():
    facts = read_rocm_smi(ROCM_FACTS)
    (gpu,) = facts.gpus
    assert (facts.driver, gpu.name, gpu.compute_capability) == ("6.10.5", "AMD Instinct MI250X", "gfx90a")
    assert (gpu.total_bytes, gpu.used_bytes, gpu.utilization_pct) == (68702699520, 10960896, 7)


@pytest.mark.parametrize("table", ROCM_TABLES)
def test_rocm_smi_table(table):
    facts = read_rocm_smi(ROCM_TABLES[table])
    gpu = facts.gpus[0]
    assert (gpu.utilization_pct, gpu.power_w, gpu.power_limit_w, gpu.temperature_c) == (99, 140, 750, 45)
    assert "31 % of its memory" in facts.notes[0]


def test_nvlink_status():
    first, second = read_nvlink_status(NVLINKS)
    assert (first.up, first.gb_s, second.up) == (2, 53.124, 1)
    assert "1 of 3 NVLinks up" in explained([first, second])[1]
    assert "2 on another GPU" in explained([first, second])[1]


def test_peer_access():
    access = peer_access.read_peer_access(PEERS)
    assert access.refused() == {"CNS": [("GPU0", "GPU2"), ("GPU1", "GPU2")]}
    said = peer_access.explained(access)
    assert said[0] == "peer access: 1 of 3 GPU pairs"
    assert "the chipset is not supported: 0–2, 1–2" in said[1]
    with pytest.raises(SourceError, match="mangled matrix: row GPU1 has 2 links for 3"):
        peer_access.read_peer_access(PEERS.replace("GPU1\tOK\tX\tCNS", "GPU1\tOK\tX"))


def test_links_and_access_in_one_text_are_told_apart():
    for text in (TOPOLOGY + PEERS, PEERS + TOPOLOGY):
        assert read_topology(text).devices == ("GPU0", "GPU1")
        assert len(peer_access.read_peer_access(text).devices) == 3
    with pytest.raises(SourceError, match=r"no matrix of nvidia-smi topo -m"):
        read_topology(PEERS)


@pytest.mark.parametrize(
    "reader",
    [
        read_amd_smi,
        read_rocm_smi,
        read_nvlink_status,
        peer_access.read_peer_access,
        read_nvidia_smi_csv,
        read_amd_topology,
    ],
)
@pytest.mark.parametrize("text", ["", "GPU: 0", "GPU[0]", "GPU 0: x", "GPU0", "0 1 2 3", "X" * 5000, "\x00"])
def test_other_text_is_refused(reader, text):
    with pytest.raises(SourceError, match="here: expected"):
        reader(text)


def test_doctor_reads_them_all(tmp_path, capsys):
    path = tmp_path / "machine.txt"
    path.write_text(AMD_SMI + NVLINKS + TOPOLOGY + PEERS)
    assert main(["doctor", str(path)]) == 0
    printed = capsys.readouterr().out
    for words in ("mi300x", "100 % of time", "ROCm 7.1.0", "peer access: 1 of 3", "NVLinks up", "NV4, NVLink"):
        assert words in printed
    assert main(["doctor", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["gpus"][0]["total_bytes"] == 196592 * MIB < 192 * GIB
    assert [each["up"] for each in answer["nvlinks"]] == [2, 1]
    assert answer["peer_access"]["matrix"][0] == ["X", "OK", "CNS"]


ROCM_TOPOLOGY = """
========================= Weight between two GPUs ==========================
       GPU0         GPU1
GPU0   0            15
GPU1   15           0
======================= Link Type between two GPUs =========================
       GPU0         GPU1
GPU0   0            XGMI
GPU1   XGMI         0
============================ Numa Nodes ====================================
GPU[0]\t\t: (Topology) Numa Node: 0
"""
AMD_TOPOLOGY = """
LINK TYPE TABLE:
             0000:05:00.0 0000:26:00.0
0000:05:00.0 SELF         PCIE
0000:26:00.0 PCIE         SELF

NUMA BW TABLE:
"""


def test_links_of_amd():
    for text, link in ((ROCM_TOPOLOGY, "XGMI"), (AMD_TOPOLOGY, "PCIE")):
        topology = read_amd_topology(text)
        assert (topology.devices, topology.pairs()) == (("GPU0", "GPU1"), {link: 1})
        with pytest.raises(SourceError, match=r"no matrix of nvidia-smi topo -m"):
            read_topology(text)
    with pytest.raises(SourceError, match="mangled matrix: GPU1 has 1 links for 2 columns"):
        read_amd_topology(ROCM_TOPOLOGY.replace("GPU1   XGMI         0", "GPU1   XGMI"))
    with pytest.raises(SourceError, match="not the same both ways"):
        read_amd_topology(ROCM_TOPOLOGY.replace("GPU1   XGMI ", "GPU1   PCIE "))


CSV = """index, name, driver_version, memory.total [MiB], memory.used [MiB], utilization.gpu [%], \
pcie.link.gen.current, pcie.link.gen.max, \
pcie.link.width.current, pcie.link.width.max, power.draw [W], compute_cap, mig.mode.current
0, NVIDIA H100 80GB HBM3, 560.35.05, 81559 MiB, 1034 MiB, 97 %, 1, 5, 16, 16, 70.86 W, 9.0, Disabled
1, NVIDIA GeForce RTX 4090, 560.35.05, 24564 MiB, 1 MiB, 0 %, 4, 4, 8, 16, [N/A], 8.9, [N/A]
"""


def test_query_as_csv(tmp_path, capsys):
    facts = read_nvidia_smi_csv("some words\n" + CSV)
    first, second = facts.gpus
    assert (facts.driver, first.total_bytes, first.used_bytes) == ("560.35.05", 81559 * MIB, 1034 * MIB)
    assert (first.pcie_generation, first.pcie_generation_max, second.pcie_width) == (1, 5, 8)
    assert (first.power_w, second.power_w, first.mig, second.mig) == (70.86, None, "disabled", None)
    path = tmp_path / "gpus.csv"
    path.write_text(CSV)
    assert main(["doctor", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "0: PCIe runs at generation 1 of 5: usual while idle" in printed
    assert "1: PCIe has 8 of 16 lanes" in printed
    with pytest.raises(SourceError, match="a row has 12 of 13 columns"):
        read_nvidia_smi_csv(CSV.replace("0, NVIDIA H100", "NVIDIA H100"))


def test_exporters_of_others():
    text = (
        '# TYPE gpu_used_vram gauge\ngpu_used_vram{gpu_id="3",card_series="AMD Instinct MI300X"} 283\n'
        'amd_gpu_gfx_activity{gpu_id="3"} 97\nnvidia_smi_utilization_gpu_ratio{uuid="a-b"} 0.5\n'
        'DCGM_FI_PROF_NVLINK_TX_BYTES{gpu="1"} 1e9\n'
    )
    found = [(each.gpu, each.field, each.value, each.unit) for each in read_exporter(text)]
    assert found == [
        ("3", "memory used", 283, "MiB"),
        ("3", "kernel resident", 97, "%"),
        ("a-b", "kernel resident", 50, "%"),
        ("1", "NVLink sent", 1e9, "B/s"),
    ]
