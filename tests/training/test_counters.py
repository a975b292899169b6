"""Reserved memory beside allocated, and what recipes leave open."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate
from vramwise.result import Result

GIB = 2**30


def titan(model: str, num_gpus: int, **train: Any) -> Result:
    settings = {"framework": "torchtitan", "precision": "bf16-mixed", "fsdp": "full-shard", "fsdp_version": 2, **train}
    card = {"gpu": "H100-80GB", "gpu_total_bytes": 102_047_993_456}
    return estimate({"model": model, "task": "train", "num_gpus": num_gpus, **card, "train": settings})


@pytest.mark.parametrize(
    ("batch", "gpus", "tensor_parallel", "measured_gib"),
    [(16, 32, 4, 70.20), (16, 32, 8, 43.45), (32, 32, 8, 70.79), (32, 64, 8, 63.27), (4, 16, 1, 78.48)],
)
def test_published_reserved_peaks_of_qwen3_32b(
    batch: int, gpus: int, tensor_parallel: int, measured_gib: float
) -> None:
    """torchtitan #1690, step 20 and later, full checkpointing, 4,096 tokens."""
    found = titan(
        "Qwen/Qwen3-32B", gpus, checkpointing="full", micro_batch_size=batch, sequence_length=4096,
        tensor_parallel_size=tensor_parallel, loss="vocab-parallel" if tensor_parallel > 1 else "standard",
    )  # fmt: skip
    assert found.quantities["peak_reserved"].expected == pytest.approx(measured_gib * GIB, rel=0.05)


@pytest.mark.parametrize(("loss", "measured_gib"), [("standard", 49.66), ("chunked", 42.26)])
def test_published_reserved_peaks_of_llama_3_1_8b(loss: str, measured_gib: float) -> None:
    """torchtitan #985 and #996: 8 GPUs, 8,192 tokens, selective checkpointing, expandable segments."""
    found = titan(
        "meta-llama/Llama-3.1-8B", 8, checkpointing="selective", sequence_length=8192, loss=loss,
        expandable_segments=True,
    )  # fmt: skip
    assert found.quantities["peak_reserved"].expected == pytest.approx(measured_gib * GIB, rel=0.05)


def test_reduced_gradients_stay_reserved_on_their_own_stream() -> None:
    """The peak lies in the loss's backward, before any gradient: they are reserved all the same."""
    found = titan("meta-llama/Llama-3.1-8B", 8, checkpointing="full", sequence_length=32768)
    assert found.peak_phase == "backward: head"
    kept = found.quantities["peak_reserved"].expected - 1.06 * found.quantities["peak_allocated"].expected
    gradients, root = 8_030_261_248 * 4 / 8, 2 * 128256 * 4096 * 2
    assert kept == pytest.approx(gradients + root, rel=0.1)


@pytest.mark.parametrize(
    ("framework", "expected"),
    [
        ("torchtune", ("fused", "chunked", "full")),
        ("torchtitan", ("fused", "standard", "none")),
        ("transformers", ("foreach", "standard", "none")),
    ],
)
def test_recipes_decide_what_is_left_open(framework: str, expected: tuple[str, ...]) -> None:
    names = ("optimizer_impl", "loss", "checkpointing")
    table = {"model": "meta-llama/Llama-3.2-1B", "task": "train", "train": {"framework": framework}}
    assert tuple(estimate(table).scenario["train"][name] for name in names) == expected
    table["train"] = {"framework": framework, "optimizer_impl": "for-loop", "loss": "fused", "checkpointing": "none"}
    assert tuple(estimate(table).scenario["train"][name] for name in names) == ("for-loop", "fused", "none")
