"""What Transformer Engine's products keep in 8 bits, counted by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vramwise.errors import ScenarioError
from vramwise.models import describe
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.training.job import job_of
from vramwise.training.recipe.fp8_weights import kept_in_8_bits

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


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_torchaos_linear_saves_what_torchs_does(recipe: str) -> None:
    """The real module, emulated on the CPU: 16-bit input and weight, no 8-bit copy."""
    torchao = pytest.importorskip("torchao.float8")
    import torch

    config = replace(torchao.Float8LinearConfig.from_recipe_name(recipe), emulate=True)
    plain = torch.nn.Sequential(torch.nn.Linear(32, 64, bias=False)).bfloat16()
    saved: list[tuple[torch.dtype, int]] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved.append((tensor.dtype, tensor.untyped_storage().nbytes()))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        x = torch.randn(16, 32, dtype=torch.bfloat16, requires_grad=True)
        torchao.convert_to_float8_training(plain, config=config)(x)
    assert sorted(saved, key=str) == sorted([(torch.bfloat16, 2 * 16 * 32), (torch.bfloat16, 2 * 32 * 64)], key=str)


def test_torchao_keeps_its_input_in_16_bits() -> None:
    titan = {"framework": "torchtitan", "fsdp": "full-shard"}
    assert activations(precision="fp8-mixed", **titan) == activations(precision="bf16-mixed", **titan)


@pytest.mark.parametrize(
    ("version", "recipe", "compiled", "inputs", "weights"),
    [
        ("torchao 0.8.0", "tensorwise", False, True, True),
        ("torchao 0.11.0", "tensorwise", False, False, True),
        ("torchao 0.13.0", "tensorwise", False, False, False),
        ("torchao 0.8.0", "rowwise", False, False, False),
        ("torch 2.7.1", "tensorwise", True, True, True),
        ("torch 2.8.0", "tensorwise", True, True, False),
    ],
)
def test_what_torchao_keeps_in_8_bits(version: str, recipe: str, compiled: bool, inputs: bool, weights: bool) -> None:
    train = {"framework": "pytorch", "framework_version": version, "precision": "fp8-mixed", "compile": compiled}
    scenario = Scenario.from_dict({"model": "gpt2", "task": "train", "train": {**train, "fp8_recipe": recipe}})
    assert kept_in_8_bits(scenario.train) == (inputs, weights)


def test_float8_operands_by_hand() -> None:
    """Inputs of a layer's products in 8 bits, once for each product that reads them; weights beside them."""
    titan = {"framework": "torchtitan", "precision": "fp8-mixed", "param_dtype": "bf16", "checkpointing": "none"}
    none, recomputed, saved = (activations(fp8_operands=kept, **titan) for kept in ("none", "recomputed", "saved"))
    weights = 2 * HIDDEN * HIDDEN + 2 * HIDDEN * HIDDEN // 4 + 3 * HIDDEN * WIDE
    assert saved - recomputed == LAYERS * weights
    # three copies for queries, keys, values instead of 16 bits, one beside the result of attention, two for gate and up
    assert recomputed - none == LAYERS * TOKENS * ((3 - 2) * HIDDEN + HIDDEN + (2 - 2) * HIDDEN + (1 - 2) * WIDE)


def test_rowwise_is_torchaos() -> None:
    with pytest.raises(ScenarioError, match=r"train\.fp8_recipe: rowwise"):
        activations(precision="fp8-mixed", framework="megatron", fp8_recipe="rowwise")
