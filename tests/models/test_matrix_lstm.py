"""xLSTM in the mode that its class calls `train`: whole chunks only, with states in the dtype of the keys."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")

from saved_by_autograd import saved_by_autograd
from test_saved_for_backward import completed, described_bytes

from vramwise.errors import UnsupportedModelError

CONFIG: dict[str, Any] = {
    "model_type": "xlstm", "hidden_size": 64, "num_hidden_layers": 1, "num_heads": 2, "vocab_size": 24,
    "chunk_size": 4, "ffn_round_up_to_multiple_of": 8, "mode": "train",
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize(("precision", "batch", "sequence", "heads", "weights"), [
    ("fp32", 2, 4, 2, "single"), ("bf16", 1, 8, 2, "fused"), ("bf16-mixed", 2, 12, 2, "single"),
    ("bf16-mixed", 1, 12, 1, "fused"),
])  # fmt: skip
def test_saved_in_whole_chunks(precision: str, batch: int, sequence: int, heads: int, weights: str) -> None:
    config = completed({**CONFIG, "num_heads": heads, "weight_mode": weights})
    real = saved_by_autograd(
        config, "causal-lm", attention="eager", precision=precision, batch=batch, sequence=sequence, device="cpu"
    )
    assert described_bytes(config, "eager", precision, batch, sequence, "cpu") == real


def test_other_lengths_are_refused_as_by_the_class() -> None:
    with pytest.raises(UnsupportedModelError, match="whole chunks of 4 tokens"):
        described_bytes(completed(CONFIG), "eager", "fp32", 2, 9, "cpu")
