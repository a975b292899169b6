"""8-bit weights and their copies by recipe and GPU, and Megatron's narrow optimizer states, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.hardware import find_gpu
from vramwise.models import describe
from vramwise.models.model import Model
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.training.job import Job, job_of
from vramwise.training.model_states.states import ModelStates

LLAMA = "meta-llama/Llama-3.1-8B"
HIDDEN, WIDE, LAYERS, VOCABULARY, KV = 4096, 14336, 32, 128256, 1024
PRODUCTS = LAYERS * HIDDEN * (2 * HIDDEN + 2 * KV + 3 * WIDE)
REST = 2 * VOCABULARY * HIDDEN + (2 * LAYERS + 1) * HIDDEN


def llama() -> Model:
    found = resolve(LLAMA)
    return describe(found.config, found.id)


def job(gpu: str = "h100-sxm-80gb", **train: Any) -> Job:
    settings = {"framework": "megatron", "sequence_length": 1024, "attention": "flash", **train}
    scenario = Scenario.from_dict({"model": LLAMA, "task": "train", "gpu": gpu, "num_gpus": 8, "train": settings})
    return job_of(scenario, llama(), find_gpu(gpu).gpu)


def states(**given: Any) -> ModelStates:
    made = job(**given)
    return made.states(made.ranks[0])


@pytest.mark.parametrize(
    ("gpu", "recipe", "copies"),
    [
        ("h100-sxm-80gb", "delayed", 2 * PRODUCTS),
        ("h100-sxm-80gb", "tensorwise", 2 * PRODUCTS),
        ("h100-sxm-80gb", "blockwise", 2 * (PRODUCTS + PRODUCTS // 4096)),
        ("b200-sxm-180gb", "tensorwise", PRODUCTS),
        ("b200-sxm-180gb", "mxfp8", 2 * (PRODUCTS + PRODUCTS // 32)),
        ("rtx-5090", "tensorwise", 2 * PRODUCTS),
    ],
)
def test_copies_of_16_bit_weights(gpu: str, recipe: str, copies: int) -> None:
    found = states(gpu=gpu, precision="fp8-mixed", param_dtype="bf16", fp8_recipe=recipe)
    assert (found.weights, found.copies_8_bit) == (2 * (PRODUCTS + REST), copies)


def test_8_bit_weights_have_their_transpose_beside_them() -> None:
    hopper = states(precision="fp8-mixed", param_dtype="fp8")
    assert (hopper.weights, hopper.copies_8_bit) == (PRODUCTS + 2 * REST, PRODUCTS)
    assert hopper.master == 4 * (PRODUCTS + REST)
    assert states(precision="fp8-mixed", gpu="b200-sxm-180gb").copies_8_bit == 0
    assert states(precision="fp8-mixed", fp8_transposes=False).copies_8_bit == 0


def test_recipe_and_transposes_are_written_back() -> None:
    assert (job(precision="fp8-mixed").train.fp8_recipe, job(precision="fp8-mixed").train.fp8_transposes) == (
        "delayed", True,
    )  # fmt: skip
    engine = {"framework": "pytorch", "kernels": ["transformer-engine"], "precision": "fp8-mixed"}
    assert job(gpu="b200-sxm-180gb", **engine).train.fp8_recipe == "mxfp8"
    assert job(precision="bf16-master").train.fp8_recipe is None


@pytest.mark.parametrize(("gpu", "recipe", "directions"), [("h100-sxm-80gb", "delayed", 2), ("b200", "tensorwise", 1)])
def test_elsewhere_each_product_keeps_copies_of_its_weight(gpu: str, recipe: str, directions: int) -> None:
    engine = {"framework": "pytorch", "kernels": ["transformer-engine"], "compute_dtype": "bf16", "param_dtype": "bf16"}

    def activations(**train: Any) -> int:
        made = job(gpu=gpu, **engine, **train)
        return next(m for m in made.moments(made.ranks[0]) if m.name == "forward end").parts["activations"]

    inputs = LAYERS * 1024 * (2 * HIDDEN + WIDE - HIDDEN)
    saved = activations(precision="fp8-mixed", fp8_recipe=recipe) - activations(precision="bf16")
    assert saved == directions * PRODUCTS - inputs


def test_step_of_16_bit_gradients_makes_fp32_copies_of_the_ranks_part() -> None:
    made = job(precision="bf16-master", grad_dtype="bf16", distributed_optimizer=True)
    step = next(moment for moment in made.moments(made.ranks[0]) if moment.name == "optimizer step")
    assert step.parts["gradients"] == 2 * (PRODUCTS + REST)
    assert step.parts["fp32 gradients"] == pytest.approx(4 * (PRODUCTS + REST) / 8, rel=1e-6)
    assert states(precision="bf16-master").fp32_gradients == 0


def test_precision_aware_optimizer_keeps_the_bits_that_bf16_weights_lack() -> None:
    narrow = {"precision": "bf16-master", "grad_dtype": "bf16", "distributed_optimizer": True}
    found = states(**narrow, optimizer_state_dtype="bf16", precision_aware_optimizer=True)
    assert found.master == pytest.approx(2 * (PRODUCTS + REST) / 8, rel=1e-6)
    assert found.optimizer == pytest.approx(4 * (PRODUCTS + REST) / 8, rel=1e-6)
    assert found.fp32_gradients == 0
    assert states(**narrow).master == 2 * found.master


def test_with_tensorwise_8_bit_products_the_optimizer_works_on_fp32_all_the_same() -> None:
    narrow = {"precision": "fp8-mixed", "grad_dtype": "bf16", "distributed_optimizer": True, "param_dtype": "bf16"}
    tensorwise, delayed = (
        states(**narrow, precision_aware_optimizer=True, fp8_recipe=recipe) for recipe in ("tensorwise", "delayed")
    )
    assert (tensorwise.master, delayed.fp32_gradients) == (2 * delayed.master, 0)
    assert tensorwise.fp32_gradients == tensorwise.master
