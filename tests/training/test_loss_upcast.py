"""Bytes a logit of losses with and without fp32 copies, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate

TOKENS, VOCABULARY = 512, 32000
MODEL = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": VOCABULARY, "max_position_embeddings": TOKENS,
}  # fmt: skip


def bytes_a_logit(**train: Any) -> float:
    table = {"framework": "pytorch", "precision": "bf16", "sequence_length": TOKENS, "keeps_outputs": False, **train}
    found = estimate({"model": MODEL, "task": "train", "train": table})
    phase = next(phase for phase in found.phases if phase.name == "backward: head")
    size = next(part.bytes for part in phase.components.children if part.name == "logits and loss")
    return size / (TOKENS * VOCABULARY)


def test_logits_as_they_are() -> None:
    """Log-probabilities and the gradients in front of and behind them, in 16 bits or, of a copy, in fp32."""
    assert bytes_a_logit(loss_upcast=False) == pytest.approx(2 + 2 + 2, rel=0.01)
    assert bytes_a_logit(loss_upcast=True) == bytes_a_logit() == pytest.approx(4 + 4 + 4, rel=0.01)


@pytest.mark.parametrize("framework", ["torchtune", "torchtitan", "litgpt"])
def test_chunks_and_own_losses_follow(framework: str) -> None:
    table = {"framework": framework, "framework_version": "2025-05", "loss": "chunked", "checkpointing": "none"}
    narrow, wide = (bytes_a_logit(**table, loss_upcast=up) for up in (False, True))
    assert narrow < wide


def test_one_kernel_says_that_it_changed_nothing() -> None:
    table = {"framework": "transformers", "loss": "fused-linear", "loss_upcast": False, "sequence_length": TOKENS}
    notes = estimate({"model": MODEL, "task": "train", "train": table}).notes
    assert any(note.startswith("loss_upcast changed nothing here") for note in notes)
