"""`gpu` with a number behind it, and machines that clouds rent by a name."""

from __future__ import annotations

import pytest

from vramwise.errors import ScenarioError
from vramwise.hardware import find_gpu
from vramwise.scenario import Scenario
from vramwise.scenario.cards import plain_cards
from vramwise.scenario.machines import machine_named
from vramwise.tables import table

COUNTED = {
    "3090 x2": ("3090", 2),
    "3090x2": ("3090", 2),
    "2x3090": ("3090", 2),
    "H100 x8": ("H100", 8),
    "A100x4": ("A100", 4),
    "L40S x 4": ("L40S", 4),
    "MI300X x8": ("MI300X", 8),
    "7900 xtx x2": ("7900 xtx", 2),
    "kaggle t4 x2": ("kaggle t4", 2),
    "dual 3090": ("3090", 2),
    "7900xtx": ("7900xtx", None),
    "gtx 970": ("gtx 970", None),
    "mi300x": ("mi300x", None),
    "rx 9070xt": ("rx 9070xt", None),
}


@pytest.mark.parametrize(("written", "read"), COUNTED.items())
def test_the_number_of_cards_stands_before_or_behind(written: str, read: tuple[str, int | None]) -> None:
    cards = plain_cards(written, None, None)
    assert (cards.gpu, cards.num_gpus) == read


MACHINES = {
    "p5.48xlarge": ("h100-sxm-80gb", 8),
    "ml.g5.12xlarge": ("a10g-24gb", 4),
    "a2-highgpu-2g": ("a100-sxm-40gb", 2),
    "Standard_NC24ads_A100_v4": ("a100-pcie-80gb", 1),
    "Standard_ND96isr_H100_v5": ("h100-sxm-80gb", 8),
}


@pytest.mark.parametrize(("name", "cards"), MACHINES.items())
def test_a_rented_machine_is_its_cards(name: str, cards: tuple[str, int]) -> None:
    found = Scenario.from_dict({"model": "gpt2", "task": "train", "gpu": name})
    assert (found.gpu, found.num_gpus) == cards
    assert found.notes == (f'gpu "{name}" is a machine with {cards[1]} × {cards[0]}',)


def test_a_number_beside_a_machine_must_be_its_own() -> None:
    with pytest.raises(ScenarioError, match="contradicts num_gpus 4"):
        Scenario.from_dict({"model": "gpt2", "task": "train", "gpu": "p5.48xlarge", "num_gpus": 4})


def test_every_machine_has_known_cards_and_a_source() -> None:
    from vramwise.scenario import machines

    for row in table(machines.__file__):
        assert find_gpu(row["gpu"]).gpu.id == row["gpu"]
        assert row["source"]
        assert machine_named(row["name"]) is not None
