"""What Transformer Engine's products keep in 8 bits, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.models import describe
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.training.answer import job_of

HIDDEN, WIDE, LAYERS, TOKENS = 4096, 14336, 32, 2048


def activations(**train: Any) -> int:
    found = resolve("meta-llama/Llama-3.1-8B")
    settings = {"sequence_length": TOKENS, "attention": "flash", **train}
    scenario = Scenario.from_dict({"model": found.id, "task": "train", "num_gpus": 8, "train": settings})
    made = job_of(scenario, describe(found.config, found.id), None)
    end = next(moment for moment in made.moments(made.ranks[0]) if moment.name == "forward end")
    return end.parts["activations"]


@pytest.mark.parametrize("ranks", [1, 4])
def test_inputs_of_products_shrink_to_a_byte_a_value(ranks: int) -> None:
    """Two norms' outputs and the gated product lose a byte; the attention's output, kept by it too, gains one."""
    cut = {"framework": "megatron", "tensor_parallel_size": ranks, "sequence_parallel": ranks > 1}
    saved = activations(precision="bf16-master", **cut) - activations(precision="fp8-mixed", **cut)
    assert saved == LAYERS * TOKENS * (2 * HIDDEN + WIDE - HIDDEN) // ranks


def test_frozen_products_keep_no_copy() -> None:
    frozen = {"method": "lora", "lora_targets": ["q_proj"], "framework": "megatron"}
    plain, eight = (activations(precision=precision, **frozen) for precision in ("bf16-master", "fp8-mixed"))
    assert eight <= plain + LAYERS * TOKENS * HIDDEN


def test_torchao_keeps_its_input_in_16_bits() -> None:
    titan = {"framework": "torchtitan", "fsdp": "full-shard"}
    assert activations(precision="fp8-mixed", **titan) == activations(precision="bf16-mixed", **titan)
