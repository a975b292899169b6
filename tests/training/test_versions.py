"""`framework_version` as people write it."""

from __future__ import annotations

from datetime import date

import pytest

from vramwise import estimate
from vramwise.frameworks.versions import (
    bitsandbytes_version,
    followed,
    library_version,
    liger_version,
    stated,
    torch_version,
)
from vramwise.releases import newest_by, packages, release, releases_of
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


@pytest.mark.parametrize(
    ("framework", "text", "package", "version"),
    [
        ("transformers", "transformers 4.45.2", "torch", (2, 4, 1)),
        ("transformers", "torch 2.1.1", "transformers", (4, 35, 2)),
        ("transformers", "transformers 4.46, torch 2.5.1", "torch", (2, 5, 1)),
        ("axolotl", "0.12", "peft", (0, 17, 0)),
        ("torchtitan", "torchtitan of 2025-09", "torch", (2, 8, 0)),
        ("torchtitan", "torchtitan of 2025-09", "torchtitan", None),
        ("unsloth", "2024.8", "transformers", (4, 44, 0)),
        ("transformers", "nightly", "torch", None),
    ],
)
def test_what_is_not_named_is_what_came_out_with_what_is(
    framework: str, text: str, package: str, version: tuple[int, ...] | None
) -> None:
    assert followed(TrainSettings(framework=framework, framework_version=text), package) == version


def test_a_month_is_no_version() -> None:
    assert stated(TrainSettings(framework="torchtitan", framework_version="2024-06"), "torchtitan") is None


@pytest.mark.parametrize("commit", ["03be241", "775a486e", "6fc499f6 (August 2025), torch 2.9.0.dev20250815"])
def test_a_commit_is_no_version(commit: str) -> None:
    assert stated(TrainSettings(framework="torchtitan", framework_version=f"torchtitan {commit}"), "torchtitan") is None


@pytest.mark.parametrize("text", ["torchtitan 0.3", "torchtitan 0.3.0.dev20260818", "torchtitan==0.3.0a0"])
def test_a_version_before_letters_stays_one(text: str) -> None:
    found = stated(TrainSettings(framework="torchtitan", framework_version=text), "torchtitan")
    assert found is not None
    assert found[:2] == (0, 3)


def test_a_pin_decides_and_bounds_hold() -> None:
    pinning = release("vllm", (0, 19, 0))
    assert pinning is not None
    pinned = pinning.pinned("torch")
    assert pinned is not None
    assert pinning.allows("torch", pinned)
    assert not pinning.allows("torch", (1, 13))
    assert newest_by("2026-12-31", "torch", (pinning,)) == pinned


def test_every_release_has_a_day_and_reads() -> None:
    for package in packages():
        releases = releases_of(package)
        assert releases
        for each in releases:
            date.fromisoformat(each.day)
            assert each.version
