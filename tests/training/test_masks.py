"""Padded, packed and windowed batches in training: what attention is handed, and what it keeps of that."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate

MISTRAL = {
    "model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_size": 1024, "intermediate_size": 2048,
    "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 1000,
    "max_position_embeddings": 8192, "sliding_window": None, "tie_word_embeddings": False,
}  # fmt: skip
LAYERS, HEADS, GROUPS, HEAD_DIM = 8, 16, 4, 64


def kept(config: dict[str, Any] = MISTRAL, **train: Any) -> int:
    """Bytes of activations at the end of forward: pure bf16, 4 samples of 1,024 tokens, every layer kept."""
    settings = {
        "framework": "transformers", "precision": "bf16", "attention": "sdpa", "micro_batch_size": 4,
        "sequence_length": 1024, "checkpointing": "none", **train,
    }  # fmt: skip
    result = estimate({"model": config, "task": "train", "train": settings})
    end = next(phase for phase in result.phases if phase.name == "forward end")
    return next(node.bytes for node in end.components.children if node.name == "activations")


def test_flash_attention_takes_a_window_without_a_mask() -> None:
    """A window that the sequence outgrows is an argument of the kernel; SDPA needs a mask and whole heads."""
    windowed = MISTRAL | {"sliding_window": 512}
    assert kept(windowed, attention="flash") == kept(attention="flash")
    assert kept(windowed) > kept()


@pytest.mark.parametrize(("model_type", "version", "repeats"), [
    ("mistral", "4.47.1", True), ("mistral", "4.48.0", False), ("llama", "4.47.1", False),
])  # fmt: skip
def test_flash_attention_gets_whole_heads_in_older_classes(model_type: str, version: str, repeats: bool) -> None:
    """`repeat_kv` before the kernel in MistralFlashAttention2 until transformers 4.47; Llama has none."""
    config = MISTRAL | {"model_type": model_type}
    older = kept(config, attention="flash", framework_version=f"transformers {version}")
    copies = LAYERS * 2 * (HEADS - GROUPS) * HEAD_DIM * 4 * 1024 * 2 if repeats else 0
    assert older - kept(config, attention="flash", framework_version="transformers 4.50.0") == copies
