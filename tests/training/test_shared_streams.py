"""What checkpointed layers share is kept once: held against real modules on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
from live_bytes import kept_bytes

from vramwise.models import describe
from vramwise.scenario import Scenario
from vramwise.training.job import job_of

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

BATCH, SEQUENCE = 4, 96


def t5() -> Any:
    return transformers.T5Config(
        d_model=64, d_kv=16, d_ff=128, num_layers=4, num_decoder_layers=6, num_heads=4, vocab_size=128,
        dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0,
    )  # fmt: skip


def gemma4() -> Any:
    return transformers.Gemma4TextConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=1,
        head_dim=16, global_head_dim=32, vocab_size=128, vocab_size_per_layer_input=128, hidden_size_per_layer_input=32,
        num_kv_shared_layers=4, sliding_window=32, layer_types=["sliding_attention", "full_attention"] * 4,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("config", "name", "attention", "close"),
    [(t5, "T5ForConditionalGeneration", "eager", 0.12), (gemma4, "Gemma4ForCausalLM", "sdpa", 0.03)],
    ids=["encoder's output", "embeddings of each layer, keys and values"],
)
def test_forward_keeps_a_shared_stream_once(config: Any, name: str, attention: str, close: float) -> None:
    """One copy for each layer would be twice as much in both."""
    made = config()
    model = getattr(transformers, name)(made).train()
    model.set_attn_implementation(attention)
    model.activation_checkpointing_enable()
    ids = torch.randint(0, 100, (BATCH, SEQUENCE))
    real = kept_bytes(lambda: model(input_ids=ids, labels=ids, use_cache=False).loss)
    table = {**made.to_dict(), "architectures": [name]}
    train = {"precision": "fp32", "attention": attention, "checkpointing": "full", "micro_batch_size": BATCH,
             "sequence_length": SEQUENCE}  # fmt: skip
    job = job_of(Scenario.from_dict({"model": table, "task": "train", "train": train}), describe(table), None)
    end = next(moment for moment in job.moments(job.ranks[0]) if moment.name == "forward end")
    assert end.parts["activations"] + end.parts["logits and loss"] == pytest.approx(real, rel=close)
