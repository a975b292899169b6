"""What axolotl's k-bit preparation leaves in fp32, and what it takes back to 16 bits."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate

MODEL = {
    "model_type": "qwen3_moe", "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 512,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "num_experts": 16,
    "num_experts_per_tok": 2, "vocab_size": 4096, "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip
EXPERTS = 2 * 16 * 3 * 256 * 512
VERSION = "axolotl 0.16.0, transformers 5.5, peft 0.19"


def weights(**train: Any) -> float:
    table = {
        "framework": "axolotl", "framework_version": VERSION, "method": "qlora", "quantization": "nf4",
        "precision": "bf16-mixed", "sequence_length": 256, **train,
    }  # fmt: skip
    gpus = 2 if "fsdp" in train else 1
    found = estimate({"model": MODEL, "task": "train", "gpu": "a100-sxm-80gb", "num_gpus": gpus, "train": table})
    return found.quantities["weights"].expected


def test_experts_in_one_tensor_that_nothing_quantizes_become_fp32() -> None:
    """4 bytes a value instead of 2, where Linear4bit's weights stay as they are and an embedding is narrow again."""
    widened = weights(quantize_experts=False) - weights(quantize_experts=False, kbit_preparation=False)
    routers = 2 * 16 * 256
    assert widened == pytest.approx(2 * (EXPERTS + routers), rel=0.001)


def test_quantized_experts_are_not_prepared() -> None:
    assert weights(quantize_experts=True) == weights(quantize_experts=True, kbit_preparation=False)


def test_nor_is_what_fsdp_cuts() -> None:
    table = {"quantize_experts": False, "fsdp": "full-shard", "fsdp_version": 2}
    assert weights(**table) == weights(**table, kbit_preparation=False)
