"""A watch over CUDA's counters, with a stand-in for torch.cuda: what is read, when, and what is said of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

import vramwise
from vramwise.units import GIB, MIB

SCENARIO = {
    "model": "gpt2",
    "task": "train",
    "train": {"precision": "bf16-mixed", "micro_batch_size": 2, "sequence_length": 1024},
}


class Card:
    """An allocator of which only the counters exist."""

    def __init__(self, monkeypatch):
        self.held = self.peak = self.reserved = self.peak_reserved = 0
        self.process = 0
        for name, answer in {
            "memory_allocated": lambda _: self.held,
            "max_memory_allocated": lambda _: self.peak,
            "max_memory_reserved": lambda _: self.peak_reserved,
            "reset_peak_memory_stats": lambda _: self.reset(),
            "get_device_properties": lambda _: SimpleNamespace(
                name="NVIDIA H100 80GB HBM3", total_memory=85_022_605_312
            ),
        }.items():
            monkeypatch.setattr(torch.cuda, name, answer)
        monkeypatch.setattr("vramwise.watching.meters.process_bytes", lambda _: self.process)

    def reset(self):
        self.peak, self.peak_reserved = self.held, self.reserved

    def reaches(self, allocated, reserved, process):
        """A step that goes up to these and comes back."""
        self.peak = allocated
        self.reserved = max(self.reserved, reserved)
        self.peak_reserved = self.reserved
        self.process = process


@pytest.fixture
def card(monkeypatch):
    return Card(monkeypatch)


def estimated():
    return vramwise.estimate({**SCENARIO, "gpu": "h100-sxm-80gb", "gpu_total_bytes": 85_022_605_312}).quantities


def test_three_counters_stand_beside_the_estimate_on_the_card_at_hand(card):
    lines = []
    known = estimated()
    sizes = [int(known[name].expected) for name in ("peak_allocated", "peak_reserved", "nvidia_smi")]
    with vramwise.watch(SCENARIO, device="cuda:0", log=lines.append) as watched:
        for _ in range(3):
            card.reaches(*sizes)
            watched.step()
    assert watched.result.capacity.gpu == "h100-sxm-80gb"
    assert [row.allocated for row in watched.rows] == [sizes[0]] * 3
    assert watched.account.counters() == dict(
        zip(("peak_allocated", "peak_reserved", "nvidia_smi"), sizes, strict=True)
    )
    assert not watched.departures
    assert all(word in lines[0] for word in ("allocated", "reserved", "process"))
    assert not any("WARNING" in line for line in lines)
    assert set(watched.metrics()) == {
        f"vramwise/{name}{what}_gib" for name in ("allocated", "reserved", "process") for what in ("", "_estimated")
    }


def test_a_peak_of_a_later_step_is_told_once_and_does_not_hide_behind_an_earlier_one(card):
    lines = []
    known = estimated()
    usual = int(known["peak_allocated"].expected)
    with vramwise.watch(SCENARIO, device="cuda:0", log=lines.append) as watched:
        for allocated in (usual, usual, usual + 2 * GIB, usual, usual):
            card.reaches(allocated, int(known["peak_reserved"].expected), int(known["nvidia_smi"].expected))
            watched.step()
    assert watched.rows[-1].allocated == usual
    (departure,) = watched.departures
    assert (departure.counter, departure.step) == ("peak_allocated", 3)
    assert sum("WARNING" in line for line in lines) == 1


def test_fragmentation_is_named_while_tensors_take_what_was_estimated(card):
    lines = []
    known = estimated()
    allocated, reserved = int(known["peak_allocated"].expected), int(known["peak_reserved"].high) + 900 * MIB
    with vramwise.watch(SCENARIO, device="cuda:0", log=lines.append) as watched:
        card.reaches(allocated, reserved, 0)
        watched.step()
    found = {each.counter: each.reasons[0].term for each in watched.departures if each.is_above}
    assert found == {"peak_reserved": "fragmentation"}
    assert any("reserved − allocated" in line for line in lines)
