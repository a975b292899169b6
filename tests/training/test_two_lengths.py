"""Encoder-decoders whose two stacks read sequences of different lengths, and share their heads among GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate
from vramwise.models import describe
from vramwise.models.autograd.size import evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward
from vramwise.result import Result

T5_BASE: dict[str, Any] = {
    "model_type": "t5", "d_model": 768, "d_ff": 3072, "d_kv": 64, "num_layers": 12, "num_decoder_layers": 12,
    "num_heads": 12, "vocab_size": 29184, "feed_forward_proj": "gelu", "is_encoder_decoder": True, "dropout_rate": 0.1,
}  # fmt: skip


def answer(model: dict[str, Any] = T5_BASE, num_gpus: int = 1, **train: Any) -> Result:
    settings = {"framework": "transformers", "precision": "fp32", "attention": "eager", "checkpointing": "none",
                "sequence_length": 512, "micro_batch_size": 4, **train}  # fmt: skip
    return estimate({"model": model, "task": "train", "gpu": "h100-sxm-80gb", "num_gpus": num_gpus, "train": settings})


def activations(result: Result) -> int:
    end = next(phase for phase in result.phases if phase.name == "forward end").components.find("activations")
    assert end is not None
    return end.bytes


def test_what_autograd_keeps_is_that_of_the_two_lengths() -> None:
    model = describe(T5_BASE)
    execution = Execution(param_dtype="fp32", attention="eager", device="cuda")
    layers = record_forward(model, execution, batch=4, sequence=128, source=512).runs[:-2]
    sizes = with_rounded_axes(batch=4, sequence=128, source=512)
    kept = sum(int(evaluate(run.saved_bytes, sizes)) for run in layers)
    assert activations(answer(decoder_sequence_length=128)) == pytest.approx(kept, rel=0.002)


def test_without_a_length_of_its_own_the_decoder_reads_as_much_as_the_encoder() -> None:
    assert activations(answer()) == activations(answer(decoder_sequence_length=512))
    assert activations(answer(decoder_sequence_length=128)) < 0.7 * activations(answer())


def test_of_a_model_with_one_stack_it_changes_nothing_and_a_note_says_so() -> None:
    llama = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 4, "vocab_size": 1000}  # fmt: skip
    found = answer(llama, decoder_sequence_length=128)
    assert activations(found) == activations(answer(llama))
    assert any("decoder_sequence_length" in note and "one stack" in note for note in found.notes)


@pytest.mark.parametrize(
    ("ranks", "batches", "measured_bytes"), [(1, 1, 6_186_639_360), (2, 2, 3_377_290_752), (4, 1, 1_862_003_200)]
)
def test_published_t5_of_megatron_at_512_and_128_tokens(ranks: int, batches: int, measured_bytes: int) -> None:
    """Megatron-LM's golden values of t5 220M on H100: each rank keeps the scores of its own heads."""
    train = {"framework": "megatron", "framework_version": "Megatron-LM of August 2026, Transformer Engine",
             "precision": "bf16-master", "loss": "vocab-parallel", "optimizer_impl": "fused",
             "tensor_parallel_size": ranks, "num_microbatches": batches}  # fmt: skip
    found = answer(num_gpus=8, decoder_sequence_length=128, **train)
    assert found.quantities["peak_allocated"].expected == pytest.approx(measured_bytes, rel=0.04)
