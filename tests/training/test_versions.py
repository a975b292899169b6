"""`framework_version` as people write it."""

from __future__ import annotations

import pytest

from vramwise import estimate
from vramwise.frameworks.versions import (
    bitsandbytes_version,
    library_version,
    liger_version,
    stated,
    torch_version,
)
from vramwise.scenario import TrainSettings


@pytest.mark.parametrize(
    "text",
    ["transformers 4.46.3, torch 2.5.1", "transformers==4.46.3 torch==2.5.1", "Transformers v4.46, torch: 2.5.1+cu124",
     "torch>=2.5, transformers~=4.46"],
)  # fmt: skip
def test_versions_are_read_as_people_write_them(text: str) -> None:
    train = TrainSettings(framework_version=text)
    assert library_version(train) == (4, 46)
    assert torch_version(train) == (2, 5)


def test_a_number_alone_is_the_frameworks_own() -> None:
    assert library_version(TrainSettings(framework_version="4.38.2")) == (4, 38)
    assert torch_version(TrainSettings(framework="pytorch", framework_version="2.1.0+cu121")) == (2, 1)
    old = TrainSettings(framework="unsloth", framework_version="2024.8")
    assert stated(old, "unsloth") == (2024, 8)
    assert stated(old, "transformers") is None


def test_one_package_is_not_taken_for_another() -> None:
    train = TrainSettings(
        framework_version="liger-kernel 0.5.2, sentence-transformers 3.0, torchtune 0.4, bitsandbytes 0.41"
    )
    assert liger_version(train) == (0, 5, 2)
    assert bitsandbytes_version(train) == (0, 41, 0)
    assert stated(train, "transformers") is stated(train, "torch") is None


def test_a_version_without_a_number_gets_a_note() -> None:
    table = {"model": "gpt2", "task": "train", "train": {"framework_version": "nightly"}}
    assert any('"nightly" has no version number' in note for note in estimate(table).notes)


@pytest.mark.parametrize(("version", "replaced"), [("4.45.2", True), ("4.46.0", False), ("4.46.3", False)])
def test_until_4_46_the_wide_logits_take_the_place_of_the_others(version: str, replaced: bool) -> None:
    """transformers 4.46 moved the loss out of the modeling file, whose frame had put one over the other."""
    table = {"precision": "bf16", "method": "lora", "micro_batch_size": 2, "sequence_length": 1024}
    asked = {"model": "llama-2-7b", "task": "train", "train": table}
    after = {"framework_version": "transformers 4.47.0, torch 2.4.1"}
    here = {"framework_version": f"transformers {version}, torch 2.4.1"}
    moments = [
        {phase.name: phase.bytes for phase in estimate({**asked, "train": {**table, **named}}).phases}
        for named in (here, after)
    ]
    narrow = 2 * 2 * 1024 * 32_000
    older, newer = moments
    assert newer["loss"] - older["loss"] == (narrow if replaced else 0)
    assert older["forward return"] - newer["forward return"] == (narrow if replaced else 0)
