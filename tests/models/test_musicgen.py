"""What autograd keeps of MusicGen, whose steps hold several codes, equals the real class's, byte for byte."""

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
RUNS = [("fp32", "eager", {}), ("bf16", "sdpa", {"num_codebooks": 1}), ("bf16-mixed", "eager", {"dropout": 0.0})]


@pytest.mark.oracle
@pytest.mark.parametrize(("precision", "attention", "change"), RUNS)
def test_saved_bytes(precision: str, attention: str, change: dict[str, Any]) -> None:
    decoder = {**DECODER, **change}
    sound = {"model_type": "encodec", "num_filters": 4, "hidden_size": 8, "codebook_size": 16, "codebook_dim": 8}
    config = completed({"model_type": "musicgen", "text_encoder": TEXT, "audio_encoder": sound, "decoder": decoder})
    chosen = {"text_encoder": attention, "decoder": attention, "audio_encoder": "eager"}
    batch, steps = 2, 5
    labels = torch.zeros(batch, steps, decoder["num_codebooks"], dtype=torch.int64)
    inputs = {"input_ids": torch.zeros(batch, steps, dtype=torch.int64), "labels": labels, "use_cache": False}
    real = saved_by_autograd(
        config, "seq2seq-lm", attention=chosen, precision=precision, batch=batch, sequence=steps, device="cpu",
        others=inputs,
    )  # fmt: skip
    assert described_bytes(config, attention, precision, batch, steps, "cpu") == real
