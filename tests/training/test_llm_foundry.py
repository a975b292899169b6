"""llm-foundry around transformers' classes, and around its own: what Composer's `memory_monitor` printed.

The runs are of farbodtavakkoli/OTel training/llm/llmfoundry (commit 0990744dbea6): Qwen3 0.6B whole on 2,048 tokens
(`allow_pad_trimming: false`), `amp_bf16` over fp32 weights.
"""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate
from vramwise.frameworks import framework_named
from vramwise.result import Result

FOUNDRY = {
    "framework": "llm-foundry", "method": "full", "precision": "bf16-mixed", "micro_batch_size": 1,
    "sequence_length": 2048, "framework_version": "llm-foundry 0.23.0.dev0, torch 2.11.0, transformers 4.51.3",
}  # fmt: skip


def run(model: str | dict[str, Any], gpus: int = 1, **train: Any) -> Result:
    return estimate({"model": model, "task": "train", "num_gpus": gpus, "gpu": "mi355x", "train": {**FOUNDRY, **train}})


@pytest.mark.parametrize(
    ("gpus", "train", "measured_gb"),
    [
        (1, {"attention": "sdpa", "checkpointing": "none", "gradient_accumulation_steps": 2}, 21.9950),
        (8, {"attention": "sdpa", "checkpointing": "full", "gradient_accumulation_steps": 4}, 18.81),
        (8, {"attention": "sdpa", "checkpointing": "full", "gradient_accumulation_steps": 4, "fsdp": "full-shard",
             "fsdp_version": 1}, 8.2292),
    ],
)  # fmt: skip
def test_transformers_classes_run_under_autocast(gpus: int, train: dict[str, Any], measured_gb: float) -> None:
    assert run("Qwen/Qwen3-0.6B", gpus, **train).quantities["peak_reserved"].expected == pytest.approx(
        measured_gb * 1e9, rel=0.065
    )


def test_its_own_classes_have_casts_and_loss_of_their_own() -> None:
    own = framework_named("llm-foundry").of_types["mpt"]
    assert (own.casts.autocast, own.loss.one_kernel, own.classes) == ("never", True, "own")
    mpt = {
        "model_type": "mpt", "d_model": 256, "n_heads": 4, "n_layers": 2, "expansion_ratio": 4, "max_seq_len": 2048,
        "vocab_size": 50368, "no_bias": True,
    }  # fmt: skip
    loss = next(phase for phase in run(mpt, checkpointing="none").phases if phase.name == "loss")
    term = loss.components.find("logits and loss")
    assert term is not None
    assert term.bytes < 2.1 * 2048 * 50368 * 2  # 16-bit logits and the kernel's gradient, no fp32 copy
