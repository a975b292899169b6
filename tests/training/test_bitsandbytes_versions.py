"""What older versions of bitsandbytes hold more: their published source, and a table of measured peaks."""

from __future__ import annotations

import pytest

from vramwise.estimation import estimate
from vramwise.units import GB


def peak(version: str, framework: str = "litgpt") -> float:
    """Llama 2 7B, QLoRA on queries and values, one alpaca sample of 1,304 tokens."""
    train = {
        "framework": framework, "framework_version": f"torch 2.1.0, bitsandbytes {version}", "method": "qlora",
        "precision": "bf16", "param_dtype": "bf16", "optimizer_impl": "foreach", "micro_batch_size": 1,
        "gradient_accumulation_steps": 128, "sequence_length": 1304, "checkpointing": "none", "loss": "chunked",
        "attention": "sdpa", "quantization": "nf4", "lora_rank": 8, "lora_targets": ["q_proj", "v_proj"],
        "lora_dropout": 0.05, "lora_dtype": "bf16",
    }  # fmt: skip
    scenario = {"model": "meta-llama/Llama-2-7b-hf", "task": "train", "gpu": "A100-40GB", "train": train}
    return estimate(scenario).quantities["peak_allocated"].expected


def test_a_measured_peak_with_a_version_that_keeps_inputs() -> None:
    """Lightning-AI/litgpt tutorials/resource-tables.md: 14.14 GB with bitsandbytes 0.41.1."""
    assert peak("0.41.1") == pytest.approx(14.14 * GB, rel=0.005)


def test_inputs_are_left_from_0_43_2_and_fp16_copies_from_0_43() -> None:
    """`ctx.tensors = (A, B)` in 0.43.1, `(None, B)` in 0.43.2; `.half()` in Params4bit.cuda until 0.42."""
    assert peak("0.42.0") > peak("0.43.0") == peak("0.43.1") > peak("0.43.2") == peak("0.50.2")


def test_transformers_keeps_them_too() -> None:
    assert peak("0.43.1", "transformers") > peak("0.43.2", "transformers")
