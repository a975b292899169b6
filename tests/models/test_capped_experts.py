"""Switch Transformers: exact where no expert is full, between two stated bounds where tokens are dropped."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")

from saved_by_autograd import saved_by_autograd
from test_saved_for_backward import completed

from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward
from vramwise.scenario import Scenario
from vramwise.training import estimate_training

CONFIG: dict[str, Any] = {
    "model_type": "switch_transformers", "d_model": 12, "d_kv": 4, "d_ff": 20, "num_layers": 2, "num_decoder_layers": 2,
    "num_heads": 2, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, "num_experts": 3,
    "vocab_size": 24, "dropout_rate": 0.1, "expert_capacity": 6, "pad_token_id": 0, "decoder_start_token_id": 0,
}  # fmt: skip


def described(config: dict[str, Any], precision: str, attention: str, sequence: int, *, fewest: bool) -> int:
    execution = Execution(
        param_dtype="bf16" if precision == "bf16" else "fp32", autocast="bf16" if precision == "bf16-mixed" else None,
        attention=attention, device="cpu", fewest_routed=fewest,  # type: ignore[arg-type]
    )  # fmt: skip
    forward = record_forward(describe(config), execution, batch=2, sequence=sequence)
    found: int = evaluate(forward.saved_bytes, with_rounded_axes(batch=2, sequence=sequence))
    return found


def real(config: dict[str, Any], precision: str, attention: str, sequence: int) -> int:
    return saved_by_autograd(
        config, "seq2seq-lm", attention=attention, precision=precision, batch=2, sequence=sequence, device="cpu"
    )


@pytest.mark.oracle
@pytest.mark.parametrize("change", [{}, {"router_jitter_noise": 0.0, "router_bias": True, "dropout_rate": 0.0}])
@pytest.mark.parametrize(("precision", "attention"), [("fp32", "eager"), ("bf16", "sdpa")])
def test_exact_where_every_token_finds_room(precision: str, attention: str, change: dict[str, Any]) -> None:
    """The class takes eager attention only, so that is what any other comes to."""
    config = completed({**CONFIG, **change})
    assert described(config, precision, attention, 5, fewest=False) == real(config, precision, "eager", 5)


@pytest.mark.oracle
@pytest.mark.parametrize(("precision", "sequence"), [("fp32", 11), ("bf16", 9), ("bf16-mixed", 4), ("bf16-mixed", 11)])
def test_within_the_bounds_where_the_data_decides(precision: str, sequence: int) -> None:
    config = completed(CONFIG)
    low, high = (described(config, precision, "eager", sequence, fewest=fewest) for fewest in (True, False))
    assert low <= real(config, precision, "eager", sequence) <= high
    assert low < high < 2 * low


def test_an_answer_says_that_the_most_is_counted() -> None:
    scenario = Scenario.from_dict({"model": CONFIG, "task": "train", "gpu": "h100", "train": {"sequence_length": 32}})
    notes = estimate_training(scenario, describe(CONFIG), "table", None).notes
    assert any("at most 6 tokens of a sequence" in note for note in notes)
