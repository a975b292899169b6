"""What autograd keeps of MusicGen and MusicGen Melody, whose steps hold several codes, equals the real classes'."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from saved_by_autograd import saved_by_autograd
from test_saved_for_backward import completed, described_bytes

DECODER: dict[str, Any] = {
    "model_type": "musicgen_decoder", "vocab_size": 11, "hidden_size": 16, "num_hidden_layers": 2, "ffn_dim": 20,
    "num_attention_heads": 2, "num_codebooks": 3, "dropout": 0.1, "pad_token_id": 11, "layerdrop": 0.0,
    "decoder_start_token_id": 11, "bos_token_id": 11,
}  # fmt: skip
TEXT = {
    "model_type": "t5", "d_model": 12, "d_kv": 4, "d_ff": 20, "num_layers": 1, "num_heads": 2, "vocab_size": 24,
}  # fmt: skip
MELODY: dict[str, Any] = {"model_type": "musicgen_melody", "num_chroma": 6, "chroma_length": 4}
RUNS: list[tuple[dict[str, Any], str, str, dict[str, Any]]] = [
    ({"model_type": "musicgen"}, "fp32", "eager", {}),
    ({"model_type": "musicgen"}, "bf16", "sdpa", {"num_codebooks": 1}),
    ({"model_type": "musicgen"}, "bf16-mixed", "eager", {"dropout": 0.0}),
    (MELODY, "fp32", "eager", {}),
    (MELODY, "bf16", "sdpa", {"num_codebooks": 1, "hidden_size": 12}),
    ({**MELODY, "num_chroma": 16}, "bf16-mixed", "eager", {"dropout": 0.0}),
    ({**MELODY, "chroma_length": 1}, "bf16-mixed", "sdpa", {"attention_dropout": 0.1}),
]  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize(("whole", "precision", "attention", "change"), RUNS)
@pytest.mark.parametrize("batch", [1, 2])
def test_saved_bytes(whole: dict[str, Any], precision: str, attention: str, change: dict[str, Any], batch: int) -> None:
    decoder = {**DECODER, **change, "model_type": f"{whole['model_type']}_decoder"}
    sound = {"model_type": "encodec", "num_filters": 4, "hidden_size": 8, "codebook_size": 16, "codebook_dim": 8}
    config = completed({**whole, "text_encoder": TEXT, "audio_encoder": sound, "decoder": decoder})
    chosen = {"text_encoder": attention, "decoder": attention, "audio_encoder": "eager"}
    steps, texts = 5, 3
    labels = torch.zeros(batch, steps, decoder["num_codebooks"], dtype=torch.int64)
    inputs = {"input_ids": torch.zeros(batch, texts, dtype=torch.int64), "labels": labels, "use_cache": False}
    real = saved_by_autograd(
        config, "seq2seq-lm", attention=chosen, precision=precision, batch=batch, sequence=steps, device="cpu",
        others=inputs,
    )  # fmt: skip
    assert described_bytes(config, attention, precision, batch, steps, "cpu", source=texts) == real
