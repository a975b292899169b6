"""What autograd keeps of padded batches, packed samples told apart and masks of floats equals the real modules'."""

from __future__ import annotations

from typing import Any, Literal

import pytest

pytest.importorskip("transformers")

import torch
from config_strategies import STRATEGIES
from how_many import a_family
from hypothesis import assume, given
from hypothesis import strategies as st
from saved_by_autograd import saved_by_autograd
from transformers_models import model_config

from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward

Batch = Literal["padded", "documents", "floats"]
TYPES = ("llama", "mistral", "qwen2", "gemma3_text", "gpt_neox", "phi3", "cohere2", "olmo2")
# What a batch brings has the parameters' dtype here; LLaMA-Factory's mask has that of products.
CASES = [
    (holds, precision)
    for holds in ("padded", "documents", "floats")
    for precision in ("fp32", "bf16", "bf16-mixed")
    if (holds, precision) != ("floats", "bf16-mixed")
]


def described_bytes(
    config: dict[str, Any], holds: Batch, attention: Any, precision: str, batch: int, sequence: int
) -> int:
    execution = Execution(
        param_dtype="bf16" if precision == "bf16" else "fp32",
        autocast="bf16" if precision == "bf16-mixed" else None,
        attention=attention,
        device="cpu",
        padding=holds == "padded",
        documents=holds != "padded",
        mask_form="given" if holds == "floats" else "bool",
    )
    forward = record_forward(describe(config), execution, batch=batch, sequence=sequence)
    found: int = evaluate(forward.saved_bytes, with_rounded_axes(batch=batch, sequence=sequence))
    return found


def inputs(holds: Batch, precision: str, batch: int, sequence: int) -> dict[str, Any] | None:
    """Positions that begin anew, or a mask of floats that is handed over as it is, in the dtype of products."""
    if holds == "padded":
        return None
    ids = torch.zeros(batch, sequence, dtype=torch.int64)
    given: dict[str, Any] = {"input_ids": ids, "labels": ids.clone(), "use_cache": False}
    if holds == "documents":
        begins_anew = torch.cat([torch.arange(sequence // 2), torch.arange(sequence - sequence // 2)])
        return given | {"position_ids": begins_anew.expand(batch, -1)}
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    return given | {"attention_mask": torch.zeros(batch, 1, sequence, sequence, dtype=dtype).triu(1)}


@pytest.mark.oracle
@pytest.mark.parametrize(("holds", "precision"), CASES)
def test_small_decoders_with_masks(holds: Batch, precision: str) -> None:
    @a_family(10)
    @given(
        st.sampled_from(TYPES).flatmap(lambda name: STRATEGIES[name]()), st.sampled_from(["eager", "sdpa"]),
        st.integers(1, 3), st.integers(4, 9),
    )  # fmt: skip
    def same(config: dict[str, Any], attention: str, batch: int, sequence: int) -> None:
        config = {**model_config(config).to_dict(), "model_type": config["model_type"]}
        head = describe(config).head
        assume(head == "causal-lm" or holds == "padded")
        real = saved_by_autograd(
            config, head, attention=attention, precision=precision, batch=batch, sequence=sequence, device="cpu",
            padding=holds == "padded", others=inputs(holds, precision, batch, sequence),
        )  # fmt: skip
        assert described_bytes(config, holds, attention, precision, batch, sequence) == real

    same()
