"""What only an encoder-decoder has: a length of its own for the encoder, and fp16 states that are clamped."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from transformers_models import real_model

from vramwise.errors import SourceError, UnsupportedModelError
from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward

SMALL: dict[str, Any] = {
    "model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 3, "num_heads": 4, "vocab_size": 60,
    "dropout_rate": 0.1,
}  # fmt: skip


def really_kept(attention: str, dtype: torch.dtype, batch: int, sequence: int, source: int) -> int:
    """Bytes of the unique storages that autograd keeps of a sequence-to-sequence step, parameters excluded."""
    config = {**SMALL, "decoder_start_token_id": 0}
    model = real_model(config, "seq2seq-lm", device="cpu", attention=attention, dtype=dtype).train()
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, Any] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    ids = torch.ones(batch, source, dtype=torch.int64)
    labels = torch.ones(batch, sequence, dtype=torch.int64)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
    total = sum(storage.nbytes() for storage in kept.values())
    assert loss.requires_grad
    return total


def described(attention: Any, dtype: str, batch: int, sequence: int, source: int) -> int:
    execution = Execution(param_dtype=dtype, attention=attention, device="cpu")
    forward = record_forward(describe(SMALL), execution, batch=batch, sequence=sequence, source=source)
    total: int = evaluate(forward.saved_bytes, with_rounded_axes(batch=batch, sequence=sequence, source=source))
    return total


@pytest.mark.oracle
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(("batch", "sequence", "source"), [(2, 8, 16), (3, 5, 24), (2, 16, 7), (1, 1, 9), (2, 4, 1)])
def test_encoder_with_a_length_of_its_own(attention: str, batch: int, sequence: int, source: int) -> None:
    real = really_kept(attention, torch.bfloat16, batch, sequence, source)
    assert described(attention, "bf16", batch, sequence, source) == real


@pytest.mark.oracle
def test_fp16_states_are_clamped() -> None:
    real = really_kept("eager", torch.float16, 2, 8, 8)
    assert described("eager", "fp16", 2, 8, 8) == real


def test_caches_of_the_decoder() -> None:
    """Each decoder layer keeps its own tokens and the encoder's, 2 · heads · d_kv elements a token each."""
    kinds = [cache.kind for cache in describe(SMALL).caches]
    assert kinds == ["full", "cross"] * 3
    assert {cache.elements(10) for cache in describe(SMALL).caches} == {10 * 2 * 4 * 8}


def test_published_count() -> None:
    """t5-small has 60 506 624 parameters, the number in DeepSpeed's docs/_tutorials/zero.md."""
    assert describe({"model_type": "t5"}).num_parameters == 60_506_624


def test_flash_attention_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="no flash attention"):
        record_forward(describe(SMALL), Execution(attention="flash"), batch=2, sequence=8)


def test_unknown_feed_forward_is_one_line() -> None:
    with pytest.raises(SourceError, match="feed_forward_proj"):
        describe({**SMALL, "feed_forward_proj": "open-gelu"})
