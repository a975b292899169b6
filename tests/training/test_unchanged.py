"""Settings that changed nothing say so, and why; what changed something does not."""

from __future__ import annotations

from typing import Any

import pytest
from small_configs import BART, LLAMA

from vramwise import estimate

MIXTRAL = {
    **LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2,
}  # fmt: skip


def notes(model: Any, **train: Any) -> list[str]:
    scenario = {"model": model, "task": "train", "train": {"precision": "bf16", "sequence_length": 128, **train}}
    return list(estimate(scenario).notes)


def about(model: Any, piece: str, **train: Any) -> str:
    return "; ".join(note for note in notes(model, **train) if piece in note)


@pytest.mark.parametrize(
    ("model", "train", "sentence"),
    [
        (BART, {"kernels": ["apex"]}, "kernels apex changed nothing here: it replaces RMS norms"),
        (BART, {"kernels": ["liger"]}, "kernels liger changed nothing here"),
        (BART, {"kernels": ["liger"], "framework": "unsloth"}, "kernels liger changed nothing here: it replaces"),
        (
            LLAMA,
            {"kernels": ["liger"], "framework": "unsloth"},
            "kernels liger changed nothing here: unsloth's own kernels replace the same",
        ),
        (LLAMA, {"optimizer": "adafactor", "optimizer_impl": "fused"}, "adafactor has one implementation"),
        (LLAMA, {"recompute": ["core_attn"]}, "recompute changed nothing here: it says what selective"),
        (LLAMA, {"recompute": ["core_attn"], "checkpointing": "none"}, "recompute changed nothing here: it says what"),
        (LLAMA, {"zero_stage": 1, "offload_params": "cpu"}, "DeepSpeed offloads weights in stage 3 alone"),
        (LLAMA, {"sequence_parallel": True}, "sequence_parallel changed nothing here"),
        (LLAMA, {"method": "qlora", "quantize_experts": True}, "the model has no experts in one tensor"),
        (LLAMA, {"framework": "litgpt", "loss": "chunked"}, "litgpt's own loss"),
        (LLAMA, {"attention": "flash"}, "attention flash changed nothing here: SDPA runs a flash kernel"),
    ],
)
def test_a_setting_that_changed_nothing_says_so(model: Any, train: dict[str, Any], sentence: str) -> None:
    assert sentence in about(model, "changed nothing", **train)


@pytest.mark.parametrize(
    "train",
    [
        {"kernels": ["liger"]}, {"loss": "fused-linear"}, {"checkpointing": "selective"}, {"attention": "eager"},
        {"optimizer_impl": "fused"}, {"attention": "flash", "padding": 0.2},
    ],
)  # fmt: skip
def test_a_setting_that_changed_something_says_nothing(train: dict[str, Any]) -> None:
    assert not about(LLAMA, "changed nothing", **train)


def test_flash_attention_that_the_card_does_not_run_is_refused_and_nothing_else_is_said_of_it() -> None:
    scenario = {"model": LLAMA, "task": "train", "gpu": "v100-32gb", "train": {"attention": "flash"}}
    found = estimate(scenario)
    assert found.verdict is not None
    assert any("flash-attention does not run on Tesla V100" in reason for reason in found.verdict.reasons)
    assert not any("attention flash" in note for note in found.notes)
    assert any("attention flash changed nothing" in note for note in estimate({**scenario, "gpu": "a100"}).notes)


def test_experts_in_one_tensor_stay_wide_under_qlora_and_the_ways_out_are_named() -> None:
    said = about(MIXTRAL, "experts", method="qlora")
    assert "bitsandbytes leaves it in 16 bits" in said
    assert "--quantize-experts" in said
    assert "transformers 4.57" in said
    assert "leaves it in 16 bits" not in about(MIXTRAL, "experts", method="qlora", quantize_experts=True)
    assert "leaves it in 16 bits" not in about(MIXTRAL, "experts", method="qlora", framework="unsloth")
    assert not about(MIXTRAL, "adapters skip", method="qlora", framework_version="transformers 4.57")


@pytest.mark.parametrize(
    ("gpu", "torch", "grow"),
    [("mi300x", "2.11", False), ("mi300x", "2.12", True), ("mi355x", "2.8", False), ("h100-80gb", "2.8", True)],
)
def test_segments_grow_on_rocm_since_torch_2_12(gpu: str, torch: str, grow: bool) -> None:
    """torch 2.11 c10/cuda/CUDAAllocatorConfig.h: "expandable_segments not supported on this platform"."""
    train = {"framework": "transformers", "framework_version": f"torch {torch}", "sequence_length": 128}
    asked = {"model": LLAMA, "task": "train", "gpu": gpu, "train": train | {"expandable_segments": True}}
    found, without = estimate(asked), estimate({**asked, "train": train})
    said = any("expandable_segments changed nothing here: torch's allocator has none" in note for note in found.notes)
    assert found.scenario["train"]["expandable_segments"] is grow is not said
    unasked = {"framework": "unsloth", "framework_version": f"unsloth 2025.8.1, torch {torch}"}
    own = estimate({**asked, "train": unasked})
    assert any("expandable_segments on" in note for note in own.notes) is grow
    if not grow:
        assert found.phases == without.phases


TWICE = "full checkpointing computes the forward pass of every layer twice"


def test_full_checkpointing_says_what_it_costs_in_time() -> None:
    assert TWICE in notes(LLAMA, checkpointing="full")
    assert f"{TWICE}; it is on in torchtune's recipes" in notes(LLAMA, checkpointing="full", framework="torchtune")
    assert not about(LLAMA, TWICE, checkpointing="none")
    assert not about(LLAMA, TWICE, checkpointing="selective")
