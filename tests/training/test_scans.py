"""Mamba layers under Megatron keep what their kernel keeps; recomputing experts leaves a layer its input."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.models import describe
from vramwise.models.autograd.size import evaluate, with_rounded_axes
from vramwise.scenario import Scenario
from vramwise.training.activations.sizes import RunBytes, step_shape
from vramwise.training.job import job_of

SEQUENCE = 512
HYBRID = {
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 3, "hybrid_override_pattern": "ME*", "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 64, "vocab_size": 512, "mamba_num_heads": 8, "mamba_head_dim": 64, "n_groups": 2, "ssm_state_size": 16,
    "conv_kernel": 4, "chunk_size": 128, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
    "moe_shared_expert_intermediate_size": 128, "n_shared_experts": 1,
}  # fmt: skip


def layers(**train: Any) -> tuple[list[RunBytes], dict[str, int]]:
    model = describe(HYBRID)
    scenario = {"model": HYBRID, "task": "train", "train": {"sequence_length": SEQUENCE, **train}}
    made = job_of(Scenario.from_dict(scenario), model, None)
    axes = with_rounded_axes(batch=1, sequence=SEQUENCE)
    shape = step_shape(model, made.structure, 1, SEQUENCE, accumulating=True)
    return [run for run in shape.at(axes) if run.layer is not None], axes


def test_a_mamba_layer_keeps_its_projected_input_and_its_output() -> None:
    runs, axes = layers(framework="megatron", precision="bf16-master")
    kept = {(k.module, k.role): evaluate(k.nbytes, axes) for k in runs[0].kept}
    inner, projected = 8 * 64, 2 * 8 * 64 + 2 * 2 * 16 + 8
    assert kept["mixer.in_proj", "mamba_scan.projected input"] == SEQUENCE * projected * 2
    assert kept["mixer", "mamba_scan.output"] == SEQUENCE * inner * 2
    assert kept["mixer", "fused_rms_norm.input"] == SEQUENCE * inner * 2
    plain, _ = layers(framework="transformers", precision="bf16")
    assert runs[0].activations < plain[0].activations / 4


@pytest.mark.parametrize("what", ["moe", "moe_act"])
def test_recomputed_experts(what: str) -> None:
    base, _ = layers(framework="megatron", precision="bf16-master")
    less, axes = layers(framework="megatron", precision="bf16-master", checkpointing="selective", recompute=[what])
    names = {k.module for k in less[1].kept if evaluate(k.nbytes, axes) > SEQUENCE * 8}
    assert less[1].activations < base[1].activations
    assert (what == "moe") == (not any("experts" in name for name in names))
    assert less[2].activations == base[2].activations  # the attention layer has no experts
