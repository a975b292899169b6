"""Versions, dates and drivers that cannot be: one clear line each."""

from __future__ import annotations

import pytest

from vramwise import estimate
from vramwise.cli.main import main
from vramwise.errors import ScenarioError


def _notes(**settings: object) -> str:
    return "; ".join(estimate("gpt2", site=None, **settings).notes)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("torch 2.4.1, torch 2.6", "torch 2.4.1 and torch 2.6: name one of them"),
        ("torch 2.13.0, 2020-01", "torch 2.13.0 came out on 2026-07-08, long after 2020-01: name one of them"),
        ("transformers 4.46.1, January 2021", "transformers 4.46.1 came out on 2024-10-29, long after 2021-01"),
        ("2025-13", "2025-13 is no month: expected one such as 2025-06"),
        ("torch 1.13, xformers 0.0.30", "xformers 0.0.30 asks for torch 2.7.0 or newer, and torch 1.13 is named"),
    ],
)
def test_what_contradicts_itself_is_refused(version, said):
    with pytest.raises(ScenarioError) as refused:
        estimate("gpt2", task="train", framework_version=version)
    assert str(refused.value).startswith(f"train.framework_version: {said}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "version",
    ["torch 2.9.0.dev20250815, August 2025", "torch 2.1 nightly of July 2023", "torchtitan of 2024-03",
     "unsloth 2024.1, torch 2.1.0, xformers 0.0.22", "transformers 4.46.3, torch 2.5.1"],
)  # fmt: skip
def test_what_people_run_is_not(version):
    assert "check it" not in _notes(task="train", framework_version=version)


def test_what_is_newer_than_all_that_is_known_is_said():
    assert "torch 9.9 is newer than any that is known here" in _notes(task="train", framework_version="torch 9.9")
    assert "2031-05 is later than all releases known here" in _notes(task="train", framework_version="2031-05")
    assert "vLLM 99.9 is newer than any that is known here" in _notes(task="serve", engine_version="99.9")


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        ("abc", 'expected a version such as 570.86.15, got "abc"'),
        ("-5", 'expected a version such as 570.86.15, got "-5"'),
        ("999.99", "NVIDIA has no driver 999.99: branches go from 346 to 610"),
        ("12.4", "NVIDIA has no driver 12.4; it looks like a version of CUDA"),
    ],
)
def test_a_driver_that_there_is_not_is_refused(driver, said):
    with pytest.raises(ScenarioError) as refused:
        estimate("gpt2", task="train", gpu="a100-80gb", driver=driver)
    assert str(refused.value).startswith(f"driver: {said}")


@pytest.mark.parametrize(("gpu", "driver"), [("a100-80gb", "550.54.15"), ("a100-80gb", "535"), ("mi300x", "6.12.12")])
def test_drivers_of_cards_are_taken(gpu, driver):
    assert estimate("gpt2", task="train", gpu=gpu, driver=driver).quantities


def test_lengths_whose_mean_is_above_the_longest_are_refused_in_one_line(capsys):
    lengths = "mean=900,spread=10,maximum=500"
    assert main(["estimate", "gpt2", "--task", "train", "--sample-lengths", lengths]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("vramwise: train.sample_lengths: the mean, 900, is above the maximum, 500")
