"""A host that is too small for what is offloaded to it (`host_memory_bytes`)."""

from __future__ import annotations

from typing import Any

from vramwise import estimate

GIB = 2**30
MODEL = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 8,
    "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 1024,
}  # fmt: skip


def answer(host_memory_bytes: int | None = None, **train: Any) -> Any:
    table = {
        "framework": "deepspeed", "zero_stage": 3, "precision": "bf16-master", "optimizer": "adamw",
        "offload_optimizer": "cpu", "offload_params": "cpu", "sequence_length": 512, **train,
    }  # fmt: skip
    scenario = {"model": MODEL, "task": "train", "gpu": "a100-sxm-80gb", "num_gpus": 2, "train": table}
    return estimate({**scenario, "host_memory_bytes": host_memory_bytes} if host_memory_bytes else scenario)


def test_more_than_the_host_has_does_not_fit() -> None:
    unsaid = answer()
    need = int(unsaid.quantities["host_memory"].expected)
    room, short = answer(need), answer(need - 1)
    assert (unsaid.verdict.word, room.verdict.word, short.verdict.word) == ("fits", "fits", "does not fit")
    assert not unsaid.quantities["oom"].expected
    assert not room.quantities["oom"].expected
    assert short.quantities["oom"].expected
    assert short.verdict.probability == 0
    assert "of host memory on a node, which has" in short.verdict.reasons[0]
    assert short.quantities["total_needed"] == unsaid.quantities["total_needed"]


def test_nothing_offloaded_needs_no_host() -> None:
    found = answer(GIB, offload_optimizer="none", offload_params="none")
    assert found.verdict.word == "fits"
