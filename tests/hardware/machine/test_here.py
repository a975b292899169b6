"""`gpu: here`: the cards that a stand-in for NVML, or stand-ins for vendors' tools on the PATH, report."""

from __future__ import annotations

import json
import stat
import sys
from types import SimpleNamespace

import pytest

from vramwise.cli.main import main
from vramwise.errors import ScenarioError
from vramwise.estimation import estimate
from vramwise.hardware.machine import here, nvml
from vramwise.hardware.machine.here import located
from vramwise.scenario import Scenario
from vramwise.scenario.cards import card_here
from vramwise.units import GIB, MIB

H100, V100 = "NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-16GB"
TOTAL = 81559 * MIB


class NVMLError(Exception):
    pass


def card(name=H100, *, total=TOTAL, free=70 * GIB, reserved=551 * MIB, uuid="GPU-11", programs=(), slices=()):
    return SimpleNamespace(
        name=name, total=total, free=free, reserved=reserved, uuid=uuid, programs=programs, slices=list(slices)
    )


class Driver:
    """As nvidia-ml-py answers."""

    NVMLError = NVMLError
    nvmlMemory_v2 = 0x2000028

    def __init__(self, *cards):
        self.cards = cards

    def nvmlInit(self):
        pass

    nvmlShutdown = nvmlInit

    def nvmlSystemGetDriverVersion(self):
        return "580.65.06"

    def nvmlDeviceGetCount(self):
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.cards[index]

    def nvmlDeviceGetName(self, one):
        return one.name

    def nvmlDeviceGetUUID(self, one):
        return one.uuid

    def nvmlDeviceGetMemoryInfo(self, one, version=None):
        return SimpleNamespace(total=one.total, free=one.free, used=one.total - one.free, reserved=one.reserved)

    def nvmlDeviceGetMigMode(self, one):
        return (int(bool(one.slices)),) * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, one):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, one, place):
        if place >= len(one.slices):
            raise NVMLError("not found")
        return one.slices[place]

    def nvmlDeviceGetComputeRunningProcesses(self, one):
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, _, used in one.programs]

    def nvmlDeviceGetGraphicsRunningProcesses(self, one):
        return []

    def nvmlSystemGetProcessName(self, pid):
        return next(name for one in self.cards for number, name, _ in one.programs if number == pid)

    def __getattr__(self, name):
        raise AttributeError(name)


@pytest.fixture(autouse=True)
def nothing_hidden(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def machine(monkeypatch):
    def of(*cards):
        monkeypatch.setitem(sys.modules, "pynvml", Driver(*cards))

    return of


def ask(gpu="here", /, **more):
    return located(Scenario.from_dict({"model": "llama-3.1-8b", "task": "load", "gpu": gpu, **more}))


def test_the_card_its_free_memory_and_who_holds_the_rest(machine):
    machine(card(programs=[(42, "/usr/bin/python3", 6 * GIB), (7, "Xorg", 300 * MIB)]))
    found = ask()
    assert (found.gpu, found.gpu_total_bytes, found.gpu_free_bytes) == ("h100-sxm-80gb", TOTAL - 551 * MIB, 70 * GIB)
    assert found.driver == "580.65.06"
    (note,) = found.notes
    assert "70.00 GiB of 79.11 GiB free now" in note
    assert "held by python3 (pid 42) 6.00 GiB, Xorg (pid 7) 0.29 GiB, 2.82 GiB by nobody that the driver names" in note


def test_the_resolved_scenario_gives_the_same_answer_elsewhere(machine):
    machine(card(free=30 * GIB))
    asked = {"model": "llama-3.1-8b", "task": "serve", "serve": {"max_model_len": 8192}}
    result = estimate({**asked, "gpu": "here"})
    assert result.verdict.word == "does not fit"
    elsewhere = estimate(result.scenario)
    assert elsewhere.verdict == result.verdict
    assert elsewhere.capacity == result.capacity


def test_a_process_whose_memory_the_driver_does_not_tell(machine):
    machine(card(programs=[(42, "python", None)]))
    assert "held by python (pid 42): how much, the driver does not tell" in ask().notes[0]


def test_a_card_that_nobody_knows_is_its_memory(machine):
    machine(card("NVIDIA Z9000", total=50 * GIB, free=49 * GIB))
    found = ask()
    assert (found.gpu, found.gpu_total_bytes) == (None, 50 * GIB)
    assert "NVIDIA Z9000 is no card that is known here: only its memory is" in found.notes


@pytest.mark.parametrize(
    ("shown", "index"),
    [("1", 1), ("GPU-22", 1), ("1,0", 1), ("0", 0), (None, 0), ("all", 0)],
)
def test_the_environment_chooses(machine, monkeypatch, shown, index):
    machine(card(), card(uuid="GPU-2222", free=60 * GIB))
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert ask().gpu_free_bytes == (70 * GIB, 60 * GIB)[index]


@pytest.mark.parametrize("hidden", ["", "-1", "5", "GPU-99"])
def test_a_hidden_card_is_said(machine, monkeypatch, hidden):
    machine(card())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    with pytest.raises(ScenarioError, match="shows none of this machine's 1 GPUs"):
        ask()


def test_a_freer_card_is_named(machine):
    machine(card(free=10 * GIB), card(uuid="GPU-22"))
    assert "GPU 1 has 70.00 GiB free: --gpu here:1, and CUDA_VISIBLE_DEVICES=1 for the program" in ask().notes
    assert ask("here:1").gpu_free_bytes == 70 * GIB
    assert ask("HERE 1").gpu_free_bytes == 70 * GIB
    with pytest.raises(ScenarioError, match=r'no GPU "7" on this machine \(its indices: 0, 1\)'):
        ask("here:7")


def test_several_cards_and_unequal_ones(machine):
    machine(card(), card(free=20 * GIB, uuid="GPU-22"))
    assert ask(num_gpus=2).gpu_free_bytes == 20 * GIB
    with pytest.raises(ScenarioError, match="num_gpus: 3: this machine offers 2"):
        ask(num_gpus=3)
    machine(card(), card(V100, total=16 * GIB, free=15 * GIB, uuid="GPU-33"))
    found = ask(num_gpus=2)
    assert (found.gpu, found.gpus) == (None, ("h100-sxm-80gb", "v100-sxm2-16gb"))
    assert found.gpu_free_bytes == 15 * GIB


def test_a_mig_slice(machine, monkeypatch, capsys):
    parts = [
        card(f"{H100} MIG 1g.10gb", total=9984 * MIB, free=9971 * MIB, uuid="MIG-aa"),
        card(f"{H100} MIG 3g.40gb", total=40448 * MIB, free=40000 * MIB, uuid="MIG-bb"),
    ]
    machine(card(slices=parts))
    found = ask()
    assert (found.gpu, found.gpu_total_bytes) == ("h100-sxm-80gb-mig-1g.10gb", 9984 * MIB)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-bb")
    assert ask().gpu == "h100-sxm-80gb-mig-3g.40gb"
    assert main(["gpus", "--here"]) == 0
    assert "MIG 1g.10gb: 9.74 GiB of 9.75 GiB free" in capsys.readouterr().out


def test_mig_mode_without_slices(machine):
    whole = card(slices=[None])
    machine(whole)
    Driver.nvmlDeviceGetMigMode(None, whole)
    whole.slices = ()
    sys.modules["pynvml"].nvmlDeviceGetMigMode = lambda one: (1, 1)
    with pytest.raises(ScenarioError, match="in MIG mode and has no slice yet"):
        ask()


@pytest.mark.parametrize("name", ["here", "HERE", "here:1", "here 1", "here:MIG-aa"])
def test_what_asks_for_this_machine(name):
    assert card_here(name) is not None


@pytest.mark.parametrize("name", ["hereford", "h100", None, "the one here"])
def test_what_does_not(name):
    assert card_here(name) is None


def test_no_card_is_one_line_and_exit_code_2(monkeypatch, capsys):
    monkeypatch.setattr(nvml, "_through_nvml", lambda: None)
    monkeypatch.setattr(nvml, "which", lambda _: None)
    assert main(["estimate", "llama-3.1-8b", "--task", "load", "--gpu", "here"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("vramwise: --gpu: here: no GPU answers on this machine")
    assert said.count("\n") == 1


# -- vendors' tools ------------------------------------------------------------------------------------------------

QUERY = """
==============NVSMI LOG==============

Driver Version                            : 580.65.06
CUDA Version                              : 13.0

Attached GPUs                             : 1
GPU 00000000:01:00.0
    Product Name                          : NVIDIA A100-SXM4-40GB
    GPU UUID                              : GPU-0a
    MIG Mode
        Current                           : {mig}
        Pending                           : {mig}
{devices}
    FB Memory Usage
        Total                             : 40960 MiB
        Reserved                          : 570 MiB
        Used                              : 12000 MiB
        Free                              : 28390 MiB
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4321
            Type                          : C
            Name                          : /opt/venv/bin/python
            Used GPU Memory               : 11500 MiB
"""
DEVICES = "\n".join(
    f"""    MIG Device
        Index                             : {index}
        GPU Instance ID                   : {index + 1}
        FB Memory Usage
            Total                         : {total} MiB
            Reserved                      : 0 MiB
            Used                          : {total - free} MiB
            Free                          : {free} MiB"""
    for index, (total, free) in enumerate([(4864, 4851), (20096, 19000)])
)
LIST = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-0a)
  MIG 1g.5gb      Device  0: (UUID: MIG-c1)
  MIG 3g.20gb     Device  1: (UUID: MIG-c2)
"""


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Puts programs on the PATH that print what they are told, by their arguments."""
    monkeypatch.setattr(nvml, "_through_nvml", lambda: None)
    monkeypatch.setattr(nvml, "_hung_at", {})
    monkeypatch.setenv("PATH", str(tmp_path))

    def install(name, **printed):
        cases = "\n".join(
            f"{json.dumps(words)}) /bin/cat {tmp_path / f'{name}{i}'};;" for i, words in enumerate(printed)
        )
        for i, text in enumerate(printed.values()):
            (tmp_path / f"{name}{i}").write_text(text)
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}\n*) exit 1;;\nesac\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    return install


def test_nvidia_smi(tools):
    tools("nvidia-smi", **{"-q": QUERY.format(mig="Disabled", devices="")})
    found = ask()
    assert (found.gpu, found.gpu_total_bytes) == ("a100-sxm-40gb", (40960 - 570) * MIB)
    assert found.gpu_free_bytes == 28390 * MIB
    assert "held by python (pid 4321) 11.23 GiB, 0.49 GiB by nobody that the driver names" in found.notes[0]


def test_mig_slices_through_nvidia_smi(tools, monkeypatch):
    tools("nvidia-smi", **{"-q": QUERY.format(mig="Enabled", devices=DEVICES), "-L": LIST})
    found = ask()
    assert (found.gpu, found.gpu_free_bytes) == ("a100-sxm-40gb-mig-1g.5gb", 4851 * MIB)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-c2")
    found = ask()
    assert (found.gpu, found.gpu_free_bytes) == ("a100-sxm-40gb-mig-3g.20gb", 19000 * MIB)


def test_rocm_smi(tools):
    report = "\n".join(
        [
            "GPU[0]\t\t: Card Series: \t\tAMD Instinct MI300X",
            f"GPU[0]\t\t: VRAM Total Memory (B): {192 * GIB}",
            f"GPU[0]\t\t: VRAM Total Used Memory (B): {12 * GIB}",
        ]
    )
    tools("rocm-smi", **{"--showproductname --showmeminfo vram --showuse --showtemp --showpower": report})
    found = ask()
    assert (found.gpu, found.gpu_total_bytes, found.gpu_free_bytes) == ("mi300x", 192 * GIB, 180 * GIB)


AMD_STATIC = """GPU: {index}
    ASIC:
        MARKET_NAME: AMD Instinct MI300X
        VENDOR_ID: 0x1002
    VRAM:
        TYPE: HBM
        VENDOR: N/A
        SIZE: 196592 MB
        BIT_WIDTH: 8192
"""
AMD_METRIC = """GPU: {index}
    USAGE:
        GFX_ACTIVITY: 0 %
    MEM_USAGE:
        TOTAL_VRAM: 196592 MB
        USED_VRAM: {used} MB
        FREE_VRAM: {free} MB
        TOTAL_VISIBLE_VRAM: 196592 MB
"""


def test_amd_smi(tools, monkeypatch):
    """Sections as amd-smi 26.1 (ROCm 7.1) prints them; of the two cards the second is in use."""
    cards = [{"index": index, "used": used, "free": 196592 - used} for index, used in ((0, 283), (1, 150_283))]
    static, metric = ("\n".join(text.format(**card) for card in cards) for text in (AMD_STATIC, AMD_METRIC))
    tools("amd-smi", static=static, metric=metric)
    found = ask()
    assert (found.gpu, found.gpu_total_bytes, found.gpu_free_bytes) == ("mi300x", 196592 * MIB, 196309 * MIB)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    assert ask().gpu_free_bytes == 46309 * MIB


PROFILER = json.dumps({"SPDisplaysDataType": [{"sppci_model": "Apple M2 Max", "sppci_cores": "38"}]})
PAGES = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                              524288.
Pages active:                           1048576.
Pages inactive:                          524288.
Pages speculative:                            0.
"""


@pytest.mark.parametrize(("limit", "total"), [(0, None), (57344, 57344 * MIB)])
def test_apple(tools, monkeypatch, limit, total):
    monkeypatch.setattr(nvml.sys, "platform", "darwin")
    tools("sysctl", **{" ".join(nvml.SYSCTL): f"Apple M2 Max\n{64 * GIB}\n{limit}\n"})
    tools("system_profiler", **{"SPDisplaysDataType -json": PROFILER})
    tools("vm_stat", **{"": PAGES})
    found = ask()
    assert (found.gpu, found.gpu_total_bytes, found.gpu_free_bytes) == ("apple-m2-max-64gb", total, 16 * GIB)


def test_an_intel_mac_has_none(tools, monkeypatch):
    monkeypatch.setattr(nvml.sys, "platform", "darwin")
    tools("sysctl", **{" ".join(nvml.SYSCTL): f"Intel(R) Core(TM) i9\n{64 * GIB}\n"})
    with pytest.raises(ScenarioError, match="no GPU answers"):
        ask()


@pytest.mark.parametrize("text", ["", "Apple M2", "Apple M2\nmuch\n", "\0", "Apple M2\n" + "9" * 400])
def test_what_sysctl_never_prints(tools, monkeypatch, text):
    monkeypatch.setattr(nvml.sys, "platform", "darwin")
    tools("sysctl", **{" ".join(nvml.SYSCTL): text})
    with pytest.raises(ScenarioError, match="no GPU answers"):
        ask()


def test_a_machine_without_a_driver_is_told_by_its_files_alone(monkeypatch):
    monkeypatch.setattr(here, "DRIVERS", ("/nowhere/at/all",))
    monkeypatch.setattr(here.sys, "platform", "linux")
    assert not here.has_driver()


def test_the_overview_takes_the_card_here(machine, monkeypatch, capsys):
    machine(card("NVIDIA GeForce RTX 4090", total=24564 * MIB, free=12 * GIB, reserved=400 * MIB))
    monkeypatch.setattr(here, "DRIVERS", ("/",))
    assert main(["estimate", "llama-3.1-8b"]) == 0
    screen = capsys.readouterr().out
    assert "GeForce RTX 4090" in screen
    assert "12.00 GiB" in screen
    assert main(["estimate", "llama-3.1-405b"]) == 0  # nobody asked about this card
    capsys.readouterr()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["estimate", "llama-3.1-8b"]) == 0
    assert "H100" in capsys.readouterr().out


def test_without_a_driver_the_overview_starts_nothing(monkeypatch, capsys):
    monkeypatch.setattr(here, "DRIVERS", ())
    monkeypatch.setattr(nvml, "this_machine", lambda: pytest.fail("looked for a card"))
    assert main(["estimate", "llama-3.1-8b"]) == 0
