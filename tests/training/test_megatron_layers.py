"""What Megatron's experts keep, and what its --recompute-modules drop, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.models import describe
from vramwise.models.autograd.size import evaluate, with_rounded_axes
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.training.activations.sizes import KeptTensor, step_shape
from vramwise.training.job import job_of

TOKENS = 4096
AXES = {"batch": 1, "sequence": TOKENS}
MOONLIGHT = "moonshotai/Moonlight-16B-A3B-Instruct"
HIDDEN, WIDE, TOP_K, LAYERS = 2048, 1408, 6, 27
LLAMA_HIDDEN, LLAMA_WIDE, LLAMA_LAYERS = 4096, 14336, 32


def kept(name: str, layer: int, **train: Any) -> list[KeptTensor]:
    found = resolve(name)
    settings = {"framework": "megatron", "precision": "bf16-master", "attention": "flash", **train}
    scenario = Scenario.from_dict({"model": name, "task": "train", "num_gpus": 8, "train": settings})
    made = job_of(scenario, describe(found.config, found.id), None)
    shape = step_shape(made.model, made.structure, 1, TOKENS, accumulating=True)
    return list([run for run in shape.runs if run.layer is not None][layer].kept)


def size(tensors: list[KeptTensor]) -> int:
    return sum(evaluate(t.nbytes, AXES) * t.count for t in tensors)


@pytest.mark.parametrize("ranks", [1, 2])
def test_experts_keep_what_their_products_and_activation_read(ranks: int) -> None:
    """A token's weight is inside the activation, so that the last product's output is not kept."""
    cut = {"tensor_parallel_size": ranks, "sequence_parallel": ranks > 1, "expert_parallel_size": 8}
    tensors = kept(MOONLIGHT, 1, **cut)
    values = [t for t in tensors if t.module == "mlp.experts" and not t.role.endswith(("indices", "offs", "other"))]
    assert size(values) == TOKENS * TOP_K // ranks * 2 * (HIDDEN + 2 * WIDE + WIDE)


def test_router_keeps_hidden_states_that_others_keep_too() -> None:
    assert not [t for t in kept(MOONLIGHT, 1) if t.module == "mlp.gate" and t.role == "mm.self"]
    own = kept(MOONLIGHT, 1, framework="transformers", precision="bf16")
    assert size([t for t in own if t.module == "mlp.gate" and t.role == "mm.self"]) == TOKENS * HIDDEN * 4


def saved_by(name: str, layer: int, *recompute: str) -> int:
    chosen = {"checkpointing": "selective", "recompute": list(recompute)}
    return size(kept(name, layer)) - size(kept(name, layer, **chosen))


def test_flash_attention_run_again_saves_statistics_alone() -> None:
    """Its output is what the product behind it keeps."""
    assert 0 < saved_by("meta-llama/Llama-3.1-8B", 1, "core_attn") <= TOKENS * 32 * 4 + 32


def test_dense_mlp_run_again_keeps_the_input_of_its_norm() -> None:
    values = 2 * TOKENS * (LLAMA_HIDDEN + 2 * LLAMA_WIDE + LLAMA_WIDE)
    assert saved_by("meta-llama/Llama-3.1-8B", 1, "mlp") == values + 4 * TOKENS


def test_norms_that_are_part_of_a_product_are_not_run_again() -> None:
    assert saved_by("meta-llama/Llama-3.1-8B", 1, "layernorm") == 0
    assert saved_by(MOONLIGHT, 1, "layernorm") == 2 * 2 * TOKENS * HIDDEN + 2 * 4 * TOKENS


def test_narrow_parts_of_latent_attention_and_experts() -> None:
    assert saved_by(MOONLIGHT, 1, "moe_act") == 2 * TOKENS * TOP_K * WIDE
    shared = 2 * TOKENS * (2 * 2 * WIDE + 2 * WIDE)
    assert saved_by(MOONLIGHT, 1, "shared_experts") == shared
    heads, key = 16, 192
    assert saved_by(MOONLIGHT, 1, "mla_up_proj") > 2 * TOKENS * heads * 2 * key
    everything = saved_by(MOONLIGHT, 1, "moe")
    assert everything > saved_by(MOONLIGHT, 1, "moe_act", "shared_experts") > shared
    assert saved_by(MOONLIGHT, 0, "moe", "moe_act", "shared_experts") == 0


@pytest.mark.parametrize("among", [1, 2])
def test_experts_states_are_divided_over_the_ranks_that_hold_them(among: int) -> None:
    """Of 16 ranks, 4 share the experts and `among` each expert: the rest hold the same ones."""
    found = resolve(MOONLIGHT)
    train = {"framework": "megatron", "precision": "bf16-master", "tensor_parallel_size": 2, "sequence_parallel": True,
             "expert_parallel_size": 4, "expert_tensor_parallel_size": among,
             "distributed_optimizer": True}  # fmt: skip
    scenario = Scenario.from_dict({"model": MOONLIGHT, "task": "train", "num_gpus": 16, "train": train})
    model = describe(found.config, found.id)
    rank = job_of(scenario, model, None).ranks[0]
    expert = next(p for p in model.parameters if p.shard.startswith("expert"))
    local = rank.local_numel(expert, expert.numel)
    assert local == expert.numel // (4 * among)
    assert rank.stepped_numel(expert, local) == expert.numel // 16


def test_ranks_that_share_an_expert_read_the_tokens_of_all_of_them() -> None:
    cut = {"tensor_parallel_size": 2, "sequence_parallel": True}
    read = [t for t in kept(MOONLIGHT, 1, **cut) if t.module == "mlp.experts" and t.role == "_grouped_mm.self"]
    assert size(read) == TOKENS * TOP_K * 2 * (HIDDEN + WIDE // 2)
    apart = kept(MOONLIGHT, 1, **cut, expert_tensor_parallel_size=1)
    assert size([t for t in apart if t.module == "mlp.experts" and t.role == "_grouped_mm.self"]) == (
        TOKENS * TOP_K * (HIDDEN + WIDE)
    )


def dummies(**train: Any) -> int:
    name = "meta-llama/Llama-3.1-8B"
    found = resolve(name)
    settings = {"framework": "megatron", "precision": "bf16-master", "attention": "flash", **train}
    scenario = Scenario.from_dict({"model": name, "task": "train", "num_gpus": 8, "train": settings})
    made = job_of(scenario, describe(found.config, found.id), None)
    step = next(moment for moment in made.moments(made.ranks[0]) if moment.name == "optimizer step")
    return step.parts.get("dummy gradients", 0)


@pytest.mark.parametrize("ranks", [1, 4])
def test_one_dummy_gradient_for_each_shape_of_a_product(ranks: int) -> None:
    """Queries, keys and values are one product; gate and up are one."""
    outputs = LLAMA_HIDDEN + 2 * 1024, LLAMA_HIDDEN, 2 * LLAMA_WIDE, LLAMA_WIDE
    expected = sum(2 * width * LLAMA_HIDDEN // ranks for width in outputs)
    assert dummies(tensor_parallel_size=ranks, sequence_parallel=ranks > 1) == expected


def test_adapters_and_other_frameworks_have_no_dummies() -> None:
    assert dummies(method="lora") == dummies(framework="deepspeed") == 0


def test_products_add_into_gradients_that_exist() -> None:
    found = resolve("meta-llama/Llama-3.1-8B")
    largest = 2 * LLAMA_HIDDEN * LLAMA_WIDE
    held = {}
    for framework in ("megatron", "deepspeed"):
        train = {"framework": framework, "precision": "bf16-master", "attention": "flash", "sequence_length": 128}
        scenario = Scenario.from_dict({"model": found.id, "task": "train", "num_gpus": 1, "train": train})
        made = job_of(scenario, describe(found.config, found.id), None)
        runs = step_shape(made.model, made.structure, 1, 128, accumulating=True).at(
            with_rounded_axes(batch=1, sequence=128)
        )
        held[framework] = next(run.peak for run in runs if run.layer is not None).temporaries
    assert held["megatron"] < largest // 4
    assert held["deepspeed"] >= largest


def test_latent_attention_keeps_values_and_output_in_their_own_width() -> None:
    heads, key, value = 16, 192, 128
    attention = [t for t in kept(MOONLIGHT, 1) if "_scaled_dot_product" in t.role and evaluate(t.nbytes, AXES) > 10**6]
    assert size(attention) == 2 * TOKENS * heads * (2 * key + 2 * value)
    assert not [t for t in kept(MOONLIGHT, 1) if t.module.startswith("self_attn") and t.role == "mm.self"
                and evaluate(t.nbytes, AXES) > 2 * TOKENS * 512]  # fmt: skip
    assert 0 < saved_by(MOONLIGHT, 1, "core_attn") < TOKENS * heads * 8


def test_rotations_that_are_no_pair_of_products_stay_as_they_are() -> None:
    """DeepSeek V4 turns a part of a head in its own way."""
    assert kept("RedHatAI/DeepSeek-V4-Flash-NVFP4-FP8", 1)


def test_an_activation_of_several_operations_keeps_its_input_alone() -> None:
    """GELU by tanh: two tensors of the inner width, one into the activation and one into the product after it."""
    roles = [(t.module, t.role) for t in kept("openai-community/gpt2", 0) if t.module.startswith("mlp")]
    assert roles == [("mlp.c_fc", "fused_activation.input"), ("mlp.act", "addmm.self")]


@pytest.mark.parametrize(
    ("gpu", "model", "workspaces"),
    [("a100-sxm-80gb", "gpt2", 1), ("h100-sxm-80gb", "gpt2", 1), ("h100-sxm-80gb", "mistralai/Mixtral-8x7B-v0.1", 5)],
)
def test_transformer_engine_has_workspaces_of_its_own(gpu: str, model: str, workspaces: int) -> None:
    sizes = {}
    for framework in ("transformers", "megatron"):
        table = {"model": model, "task": "train", "gpu": gpu, "train": {"framework": framework}}
        node = estimate(table).phases[-1].components.find("library workspace")
        assert node is not None
        sizes[framework] = node.bytes
    each = 2**25 + 2**10 if gpu.startswith("h100") else 2**22
    assert sizes["megatron"] - sizes["transformers"] == workspaces * each


@pytest.mark.parametrize("name", ["openai-community/gpt2", "google-bert/bert-base-uncased"])
def test_sequence_parallelism_cuts_the_statistics_of_norms_of_any_name(name: str) -> None:
    """`ln_1`, `attention.output.LayerNorm`: two fp32 numbers a token of a layer norm."""
    cut = {"tensor_parallel_size": 2, "sequence_parallel": True}
    statistics = [t for t in kept(name, 1, **cut) if t.role.endswith(("mean", "rstd"))]
    assert {evaluate(t.nbytes, AXES) for t in statistics} == {TOKENS * 4 // 2}
