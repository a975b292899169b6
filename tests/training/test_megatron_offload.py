"""Megatron's HybridDeviceOptimizer: what steps on the host, and what stays on the GPU."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate
from vramwise.errors import ScenarioError

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 1024, "tie_word_embeddings": False,
}  # fmt: skip


def step(**train: Any) -> dict[str, int]:
    settings = {
        "framework": "megatron", "precision": "bf16-master", "distributed_optimizer": True, "sequence_length": 128,
        **train,
    }  # fmt: skip
    found = estimate({"model": LLAMA, "task": "train", "num_gpus": 1, "train": settings})
    phase = next(phase for phase in found.phases if phase.name == "optimizer step")
    parts = {name: phase.components.find(name) for name in ("master weights", "optimizer states")}
    sizes = {name: 0 if node is None else node.bytes for name, node in parts.items()}
    host = found.quantities.get("host_memory")
    return sizes | {"host": 0 if host is None else int(host.expected)}


VALUES = 512 * 512 * 4 * 4 + 3 * 512 * 1024 * 4 + 2 * 1024 * 512 + (2 * 4 + 1) * 512


@pytest.mark.parametrize("share", [1.0, 0.65, 0.0])
def test_a_share_of_states_and_of_fp32_copies_leaves_where_the_optimizer_steps_narrow(share: float) -> None:
    """core 0.16 cpu_offloading/hybrid_optimizer.py: fp32 copies (`param_update_in_fp32`) on both sides."""
    found = step(offload_optimizer="cpu", offload_optimizer_fraction=share, precision_aware_optimizer=True)
    assert found["master weights"] == pytest.approx((1 - share) * 4 * VALUES, abs=8)
    assert found["optimizer states"] == pytest.approx((1 - share) * 8 * VALUES, abs=8)
    assert found["host"] == pytest.approx(share * 16 * VALUES, abs=8)


def test_master_weights_stay_where_they_are_unless_the_optimizer_steps_narrow() -> None:
    """core 0.16 distrib_optimizer.py makes shard_fp32_from_float16_groups on the GPU; the host has copies of them."""
    found = step(offload_optimizer="cpu", precision_aware_optimizer=False)
    assert found == {"master weights": 4 * VALUES, "optimizer states": 0, "host": 16 * VALUES}


def test_an_offloaded_optimizer_steps_narrow_unless_told_otherwise() -> None:
    """Megatron-LM training/arguments.py validate_args refuses one that does not."""
    assert step(offload_optimizer="cpu") == step(offload_optimizer="cpu", precision_aware_optimizer=True)
    assert step()["master weights"] == 4 * VALUES


def test_what_nobody_decides_is_not_said_to_be_taken() -> None:
    for settings, said in (({"offload_optimizer": "cpu"}, True), ({}, False)):
        train = {"framework": "megatron", "sequence_length": 128, **settings}
        notes = estimate({"model": LLAMA, "task": "train", "num_gpus": 1, "train": train}).notes
        assert any("precision_aware_optimizer" in note for note in notes) is said


def test_other_frameworks_have_no_share() -> None:
    with pytest.raises(ScenarioError, match="offload_optimizer_fraction"):
        step(framework="deepspeed", zero_stage=2, offload_optimizer="cpu", offload_optimizer_fraction=0.5)
