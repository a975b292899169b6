"""Liger's fused output layer and loss: what a trained weight's gradient takes while it is summed."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.errors import ScenarioError
from vramwise.estimation import estimate

OUTPUT_LAYER = 128_256 * 4096


def at_the_loss(version: str, **changed: Any) -> int:
    train = {
        "framework": "transformers", "framework_version": version, "precision": "bf16", "micro_batch_size": 1,
        "sequence_length": 2048, "checkpointing": "full", "kernels": ["liger"], "loss": "fused-linear", **changed,
    }  # fmt: skip
    found = estimate({"model": "meta-llama/Llama-3.1-8B", "task": "train", "train": train})
    return next(phase.bytes for phase in found.phases if phase.name == "loss")


def test_since_0_6_2_a_tile_is_summed_through_an_fp32_copy() -> None:
    """ops/fused_linear_cross_entropy.py: `addmm` into the gradient in 0.6.1, `+= mm(...).float()` from 0.6.2 on."""
    old, new = (at_the_loss(f"liger-kernel {version}") for version in ("0.6.1", "0.6.2"))
    assert new - old == pytest.approx((2 + 4) * OUTPUT_LAYER, rel=0.01)


def test_since_0_8_3_the_gradient_of_the_weight_grows_in_place_again() -> None:
    """ops/fused_linear_cross_entropy.py 0.8.3: `addmm(out=grad_weight)` where both are bf16, as 0.8.2 had not."""
    copied, in_place = (at_the_loss(f"liger-kernel {version}") for version in ("0.8.2", "0.8.3"))
    assert in_place == at_the_loss("liger-kernel 0.6.1") < copied


def test_a_frozen_output_layer_has_no_gradient_to_sum() -> None:
    frozen = {"method": "lora", "lora_targets": ["q_proj"]}
    assert at_the_loss("liger-kernel 0.6.1", **frozen) == at_the_loss("liger-kernel 0.8.5", **frozen)


def test_without_its_version_it_is_what_transformers_met() -> None:
    assert at_the_loss("transformers 4.48.1") == at_the_loss("transformers 4.48.1, liger-kernel 0.5.2")
    assert at_the_loss("transformers 5.13.1") == at_the_loss("transformers 5.13.1, liger-kernel 0.8.0")


def test_a_score_of_pairs_has_no_output_layer_to_run_with_the_loss() -> None:
    """What saves most tries the loss on every model: an answer of SigLIP's training ended in an internal error."""
    scenario = {"model": "google/siglip2-giant-opt-patch16-384", "task": "train", "gpu": "h100", "num_gpus": 2}
    assert all("loss" not in one["change"] for one in estimate(scenario).suggestions)
    with pytest.raises(ScenarioError, match=r"train\.loss: no output layer makes the logits"):
        estimate({**scenario, "train": {"loss": "fused-linear"}})
