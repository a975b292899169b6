"""What people write for `gpu`: several cards of one name, and a size without a name."""

from __future__ import annotations

import pytest

from vramwise.errors import ScenarioError
from vramwise.planner.changes import changed
from vramwise.scenario import Scenario
from vramwise.units import GB, GIB


def read(gpu, **top):
    return Scenario.from_dict({"model": "gpt2", "task": "train", "gpu": gpu, **top})


@pytest.mark.parametrize(
    ("gpu", "card", "count"),
    [("2x4090", "4090", 2), ("8 x H100", "H100", 8), ("4×a100 80G", "a100 80G", 4), ("2X rtx 4090", "rtx 4090", 2)],
)
def test_several_cards_of_a_name(gpu, card, count):
    found = read(gpu)
    assert (found.gpu, found.num_gpus) == (card, count)
    assert found == read(card, num_gpus=count) == read(gpu, num_gpus=count)


@pytest.mark.parametrize("name", ["4090", "7900xtx", "9070XT", "RX 7900 XTX", "7900xtx 24GB", "a100 80GB", "rtx-4090"])
def test_a_cards_own_name_stays(name):
    assert (read(name).gpu, read(name).num_gpus, read(name).gpu_total_bytes) == (name, 1, None)


@pytest.mark.parametrize(
    ("gpu", "total", "count", "note"),
    [
        ("24GB", 24 * GB, 1, 'read as gpu_total_bytes, 22.35 GiB; a card sold with that has more: "24GiB"'),
        ("24 GiB", 24 * GIB, 1, 'gpu "24 GiB" names no card: read as gpu_total_bytes, 24.00 GiB'),
        ("2x24GiB", 24 * GIB, 2, 'gpu "24GiB" names no card: read as gpu_total_bytes, 24.00 GiB'),
    ],
)
def test_a_size_without_a_card(gpu, total, count, note):
    found = read(gpu)
    assert (found.gpu, found.gpu_total_bytes, found.num_gpus) == (None, total, count)
    assert found.notes[-1].endswith(note)


@pytest.mark.parametrize(
    ("gpu", "top", "problem"),
    [
        ("2x4090", {"num_gpus": 4}, 'gpu: "2x4090" contradicts num_gpus 4: leave one out'),
        ("24GB", {"gpu_total_bytes": GB}, 'gpu: "24GB" contradicts gpu_total_bytes 1000000000: leave one out'),
        ("24G", {}, 'gpu: "24G" is ambiguous: write "24 GB"'),
        ("0x4090", {}, "num_gpus: 0 means CPU only"),
        (f"{10**30}x4090", {}, "gpu: expected a whole number"),
    ],
)
def test_what_contradicts_or_means_nothing(gpu, top, problem):
    with pytest.raises(ScenarioError) as caught:
        read(gpu, **top)
    assert problem in str(caught.value)


def test_a_sweep_may_name_several_cards():
    found = changed(read("4090"), {"gpu": "4x4090"})
    assert (found.gpu, found.num_gpus) == ("4090", 4)
