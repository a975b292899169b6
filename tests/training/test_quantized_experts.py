"""Fused experts under QLoRA: 16 bits, unless the framework is told to quantize them too, as axolotl's recipes do."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate
from vramwise.result import Result

# axolotl examples/glm45: QLoRA of GLM-4.5-Air on one 80 GB card with quantize_moe_experts, 63.4 GiB reserved.
GLM = {"framework": "axolotl", "method": "qlora", "precision": "bf16", "param_dtype": "bf16", "micro_batch_size": 2,
       "sequence_length": 2048, "gradient_accumulation_steps": 2, "checkpointing": "full", "attention": "flash",
       "loss": "fused-linear", "optimizer": "adamw-8bit", "quantization": "nf4", "lora_rank": 16, "packing": True,
       "lora_targets": ["q_proj", "v_proj", "k_proj", "o_proj"]}  # fmt: skip
LAYERS, EXPERTS, HIDDEN, WIDE = 45, 128, 4096, 1408  # of 46 layers the first is dense


def answer(**train: Any) -> Result:
    return estimate({"model": "zai-org/GLM-4.5-Air", "task": "train", "train": {**GLM, **train}})


def test_quantized_experts_take_half_a_byte_and_their_scales() -> None:
    plain, quantized = (
        answer(quantize_experts=on, kbit_preparation=False).quantities["weights"].expected for on in (False, True)
    )
    values = LAYERS * EXPERTS * 3 * HIDDEN * WIDE
    assert plain - quantized == pytest.approx(values * (2 - 0.5 - 4 / 64), rel=1e-5)  # and a table of codes a tensor


def test_a_published_run_with_quantized_experts() -> None:
    measured = answer(quantize_experts=True).quantities["peak_reserved"]
    assert measured.low < 63.4 * 2**30 < measured.high
    assert measured.expected == pytest.approx(63.4 * 2**30, rel=0.11)


def test_backward_holds_one_layers_experts_in_16_bits() -> None:
    found = answer(quantize_experts=True)
    layers = next(phase for phase in found.phases if phase.name == "backward: layers").components
    plain = answer(quantize_experts=False, kbit_preparation=False)
    dense = next(p for p in plain.phases if p.name == "backward: layers").components
    copies = 2 * EXPERTS * 3 * HIDDEN * WIDE
    names = ("activations", "backward temporaries")
    of = [sum(node.bytes for name in names if (node := tree.find(name))) for tree in (layers, dense)]
    assert of[0] - of[1] == pytest.approx(copies, rel=0.02)


def test_axolotls_recipes_quantize_them_unless_told_otherwise() -> None:
    unsaid, quantized, plain = answer(), answer(quantize_experts=True), answer(quantize_experts=False)
    assert unsaid.quantities["peak_allocated"] == quantized.quantities["peak_allocated"]
    assert any("quantize_moe_experts" in note for note in unsaid.notes)
    assert not any("quantize_moe_experts" in note for note in plain.notes)
    by_hand = answer(framework="transformers").quantities["weights"]
    assert by_hand.expected < plain.quantities["weights"].expected  # peft's preparation makes these fp32
    plain = answer(quantize_experts=False, kbit_preparation=False)
    assert by_hand.expected == plain.quantities["weights"].expected
    assert answer(quantization="gptq-int4").scenario["train"]["quantize_experts"] is False
