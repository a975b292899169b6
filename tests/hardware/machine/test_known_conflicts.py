"""What is known not to go together, and that what goes together is left alone."""

from __future__ import annotations

import pytest

from vramwise.hardware.machine.known_conflicts import driver_conflict, gpu_conflicts, package_conflicts

FINE = {"torch": "2.7.1+cu126", "torchvision": "0.22.1", "torchaudio": "2.7.1", "numpy": "2.4.6",
        "transformers": "5.23.0", "peft": "0.21.2", "accelerate": "1.15.0", "bitsandbytes": "0.50.2",
        "flash-attn": "2.8.3", "deepspeed": "0.17.5"}  # fmt: skip


def test_what_goes_together_is_left_alone():
    assert package_conflicts(FINE) == []
    assert gpu_conflicts([("NVIDIA H100 80GB HBM3", "9.0"), ("MI300X", "gfx942")], "12.6", FINE) == []
    assert gpu_conflicts([("Tesla V100-SXM2-32GB", "7.0")], "12.6", {}) == []
    assert driver_conflict("12.6", "560.35.05") == []
    assert package_conflicts({"torch": "2.14.0", "torchvision": "0.29.0", "torchaudio": "2.11.0"}) == []


@pytest.mark.parametrize(
    ("package", "version", "said"),
    [
        ("torchvision", "0.21.0", "0.22"),
        ("torchaudio", "2.6.0", "torchaudio 2.6.0 is not built for torch"),
        ("torch", "2.5.1", "transformers 5.23.0 needs torch >=2.6"),
        ("bitsandbytes", "0.45.0", "bitsandbytes >=0.46.1"),
        ("flash-attn", "2.3.2", "flash_attention_2 is refused"),
        ("peft", "0.9.0", "adapters"),
    ],
)
def test_package_conflicts(package, version, said):
    assert any(said in sentence for sentence in package_conflicts(FINE | {package: version}))


def test_transformers_5_24_asks_for_a_newer_peft():
    newer = {**FINE, "transformers": "5.24.0"}
    assert any("peft >=0.22" in sentence for sentence in package_conflicts(newer))
    assert package_conflicts({**newer, "peft": "0.22.0"}) == []


def test_numpy_2_and_an_old_torch():
    assert "NumPy 1" in package_conflicts({"torch": "2.2.2", "numpy": "2.0.1"})[0]
    assert package_conflicts({"torch": "2.2.2", "numpy": "1.26.4"}) == []


def test_a_package_built_for_one_version_of_another():
    built = {"vllm": "0.33.0", "torch": "2.14.0", "transformers": "5.20.1"}
    assert package_conflicts(built) == []
    assert package_conflicts({**built, "vllm": "0.32.0", "torch": "2.13.0"}) == []
    (other,) = package_conflicts({**built, "torch": "2.14.1"})
    assert "vllm 0.33.0 needs torch ==2.14.0, there is 2.14.1" in other
    (newer,) = package_conflicts({**built, "transformers": "5.21"})
    assert "needs transformers >=5.16.1, <5.21" in newer


@pytest.mark.parametrize(
    ("capability", "cuda", "packages", "said"),
    [
        ("12.0", "12.4", {}, "CUDA 12.8 or newer"),
        ("10.0", "12.6", {}, "no kernel image"),
        ("7.0", "13.0", {}, "needs a torch for CUDA 12"),
        ("7.5", "12.6", {"flash-attn": "2.8.3"}, "compute capability 8.0 or newer"),
    ],
)
def test_gpus_and_software(capability, cuda, packages, said):
    (sentence,) = gpu_conflicts([("a card", capability), ("a card", capability)], cuda, packages)
    assert said in sentence


def test_a_driver_too_old_for_torch():
    assert "needs driver 580 or newer: this one is 560.35.05" in driver_conflict("13.0", "560.35.05")[0]
