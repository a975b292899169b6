"""Every key of the `train` table, with every method and framework: it changes the answer, is noted, or is refused."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from by_turns import has_turn
from vramwise.errors import ScenarioError
from vramwise.estimation import estimate
from vramwise.scenario import Scenario
from vramwise.scenario.definition import KINDS, TrainSettings
from vramwise.scenario.names import FRAMEWORKS, METHODS
from vramwise.scenario.settings import LORA, MEGATRON, Owner, ownership_of

DENSE: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000, "max_position_embeddings": 512,
}  # fmt: skip
MOE = {
    **DENSE, "model_type": "qwen3_moe", "moe_intermediate_size": 128, "num_experts": 8, "num_experts_per_tok": 2,
    "head_dim": 32,
}  # fmt: skip
IMAGES = {
    **DENSE, "model_type": "qwen2_vl", "num_hidden_layers": 2, "max_position_embeddings": 4096, "image_token_id": 1,
    "vocab_size": 152064, "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
    "vision_config": {
        "depth": 2, "embed_dim": 64, "hidden_size": 256, "num_heads": 4, "mlp_ratio": 4, "in_channels": 3,
        "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
    },
}  # fmt: skip
TWO_STACKS = {
    "model_type": "t5", "d_model": 64, "d_ff": 128, "d_kv": 16, "num_layers": 2, "num_heads": 4, "vocab_size": 1000,
}  # fmt: skip
ADAPTERS = {"method": "lora"}
STAGE_2, STAGE_3, SHARDS = {"zero_stage": 2}, {"zero_stage": 3}, {"fsdp": "full-shard"}
STAGES = {"pipeline_parallel_size": 2, "num_microbatches": 4}
NVME = {**STAGE_3, "offload_optimizer": "nvme", "offload_params": "nvme"}
FP8 = {"kernels": ["transformer-engine"], "precision": "fp8-mixed", "param_dtype": "fp8_e4m3"}
PICTURE = {"sequence_length": 2048}

# key -> value, what else the table says, model
CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "method": ("lora", {}, DENSE),
    "precision": ("fp32", {"precision": "bf16"}, DENSE),
    "param_dtype": ("fp32", {"precision": "bf16"}, DENSE),
    "grad_dtype": ("fp32", {"precision": "bf16"}, DENSE),
    "master_dtype": ("fp16", {}, DENSE),
    "optimizer_state_dtype": ("fp32", {"precision": "bf16", "optimizer": "adamw"}, DENSE),
    "compute_dtype": ("fp32", {"precision": "bf16-mixed"}, DENSE),
    "fp8_recipe": ("blockwise", FP8, DENSE),
    "fp8_operands": ("saved", {"precision": "fp8-mixed", "checkpointing": "none"}, DENSE),
    "fp8_all_gather": (True, {"precision": "fp8-mixed", **SHARDS}, DENSE),
    "fp8_transposes": (False, {**FP8, "fp8_recipe": "tensorwise"}, DENSE),
    "optimizer": ("sgd", {}, DENSE),
    "optimizer_impl": ("foreach", {"optimizer": "adamw", "optimizer_impl": "for-loop"}, DENSE),
    "micro_batch_size": (2, {}, DENSE),
    "sequence_length": (128, {}, DENSE),
    "decoder_sequence_length": (128, {"sequence_length": 512}, TWO_STACKS),
    "gradient_accumulation_steps": (4, {}, DENSE),
    "images_per_sequence": (1, PICTURE, IMAGES),
    "image_size": ("64x64", {**PICTURE, "images_per_sequence": 1}, IMAGES),
    "sample_lengths": ({"mean": 40, "maximum": 64}, {}, DENSE),
    "packing": (True, {"micro_batch_size": 4, "packing": False}, DENSE),
    "padding": (0.5, {"micro_batch_size": 4, "padding_free": False}, DENSE),
    "padding_free": (True, {"micro_batch_size": 2}, DENSE),
    "document_mask": (True, {"packing": True}, DENSE),
    "head": ("sequence-classification", {}, DENSE),
    "checkpointing": ("full", {"checkpointing": "none"}, DENSE),
    "recompute": (["layer:2"], {"checkpointing": "selective"}, DENSE),
    "attention": ("eager", {"attention": "sdpa"}, DENSE),
    "loss": ("fused-linear", {}, DENSE),
    "loss_upcast": (False, {"loss": "standard"}, DENSE),
    "kernels": (["liger"], {}, DENSE),
    "lora_rank": (4, ADAPTERS, DENSE),
    "lora_targets": (["q_proj"], ADAPTERS, DENSE),
    "lora_dropout": (0.3, {**ADAPTERS, "lora_dropout": 0}, DENSE),
    "lora_dtype": ("fp16", {**ADAPTERS, "precision": "fp32"}, DENSE),
    "dora": (True, ADAPTERS, DENSE),
    "quantization": ("int8", ADAPTERS, DENSE),
    "quantize_experts": (True, {"method": "qlora", "quantize_experts": False}, MOE),
    "kbit_preparation": (True, {"method": "qlora"}, DENSE),
    "zero_stage": (2, {}, DENSE),
    "reduce_bucket_size": (1000, STAGE_2, DENSE),
    "overlap_comm": (True, STAGE_2, DENSE),
    "contiguous_gradients": (False, STAGE_2, DENSE),
    "reduce_scatter": (False, STAGE_2, DENSE),
    "sub_group_size": (1000, STAGE_3, DENSE),
    "communication_data_type": ("fp16", {**STAGE_3, "precision": "fp32"}, DENSE),
    "stage3_prefetch_bucket_size": (1000, STAGE_3, DENSE),
    "stage3_param_persistence_threshold": (10, STAGE_3, DENSE),
    "stage3_model_persistence_threshold": (10, STAGE_3, DENSE),
    "stage3_max_live_parameters": (10, STAGE_3, DENSE),
    "stage3_max_reuse_distance": (
        0,
        {
            **STAGE_3,
            "checkpointing": "full",
            "stage3_param_persistence_threshold": 0,
            "stage3_max_live_parameters": 10**6,
        },
        DENSE,
    ),
    "zero_init": (
        False,
        {
            **STAGE_3,
            "framework_version": "deepspeed 0.14.2",
            "stage3_max_reuse_distance": 0,
            "stage3_param_persistence_threshold": 0,
            "stage3_prefetch_bucket_size": 0,
        },
        DENSE,
    ),
    "zero_hpz_partition_size": (2, STAGE_3, DENSE),
    "zero_quantized_weights": (True, STAGE_3, DENSE),
    "fsdp": ("full-shard", {}, DENSE),
    "fsdp_version": (1, SHARDS, DENSE),
    "fsdp_units": (["root"], SHARDS, DENSE),
    "reshard_after_forward": (False, SHARDS, DENSE),
    "tensor_parallel_size": (2, {}, DENSE),
    "sequence_parallel": (True, {"tensor_parallel_size": 2}, DENSE),
    "pipeline_parallel_size": (2, {}, DENSE),
    "pipeline_layers": ([1, 3], STAGES, DENSE),
    "virtual_pipeline_parallel_size": (2, STAGES, DENSE),
    "pipeline_schedule": ("gpipe", STAGES, DENSE),
    "num_microbatches": (2, {"pipeline_parallel_size": 4, "pipeline_schedule": "gpipe"}, DENSE),
    "context_parallel_size": (2, {}, DENSE),
    "context_parallel_kind": ("ulysses", {"context_parallel_size": 2, "context_parallel_kind": "ring"}, DENSE),
    "moe_overload_factor": (3, {"expert_parallel_size": 4}, MOE),
    "moe_capacity_factor": (1, {"expert_parallel_size": 2, "moe_overload_factor": 2}, MOE),
    "expert_parallel_size": (2, {}, MOE),
    "expert_tensor_parallel_size": (2, {"tensor_parallel_size": 2, "expert_parallel_size": 2}, MOE),
    "distributed_optimizer": (True, {}, DENSE),
    "precision_aware_optimizer": (True, {"precision": "bf16-master"}, DENSE),
    "offload_optimizer": ("cpu", STAGE_3, DENSE),
    "offload_params": ("cpu", STAGE_3, DENSE),
    "offload_activations": ("cpu", {"checkpointing": "full", "offload_activations": "none"}, DENSE),
    "offload_optimizer_fraction": (0.5, {"framework": "megatron", "offload_optimizer": "cpu"}, DENSE),
    "offload_pin_memory": (False, {**STAGE_3, "offload_optimizer": "cpu"}, DENSE),
    "offload_optimizer_buffer_count": (9, NVME, DENSE),
    "offload_params_buffer_count": (9, NVME, DENSE),
    "offload_params_buffer_size": (123_456_789, NVME, DENSE),
    "offload_params_max_in_cpu": (1, NVME, DENSE),
    "compile": (True, {}, DENSE),
    "compiled": (["loss"], {"compile": True}, DENSE),
    "clip_grad_norm": (False, {"clip_grad_norm": True}, DENSE),
    "gradient_release": (True, {}, DENSE),
    "keeps_outputs": (True, {}, DENSE),
    "step_function": (True, {"keeps_outputs": True}, DENSE),
    "set_to_none": (False, {}, DENSE),
    "eval_batch_size": (8, {}, DENSE),
    "expandable_segments": (True, {"expandable_segments": False}, DENSE),
    "trainable": (["layers.0"], {"method": "freeze", "trainable": ["layers"]}, DENSE),
    "extra_models": (["reference"], {}, DENSE),
    "rollout_gpu_memory_utilization": (0.5, {}, DENSE),
    "rollout_sleep": (True, {"rollout_gpu_memory_utilization": 0.5}, DENSE),
}
ELSEWHERE = {
    "framework": "every test below goes through all of them",
    "framework_version": "what it changes hangs on the version: tests/training/test_library_versions.py",
    "cpu_ram_efficient_loading": "it changes what loading takes of models larger than these",
}
EVERYBODYS = tuple(key for key, whose in ownership_of(TrainSettings).items() if not whose.owners)


def scenario(framework: str, model: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": model, "task": "train", "gpu": "h100-sxm-80gb", "num_gpus": 8,
        "train": {"framework": framework, **table},
    }  # fmt: skip


def told(asked: dict[str, Any]) -> tuple[Any, ...]:
    return _answered(json.dumps(asked))[0]


def notes_of(asked: dict[str, Any]) -> tuple[str, ...]:
    return _answered(json.dumps(asked))[1]


@cache
def _answered(asked: str) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Numbers and notes of a scenario; many keys are compared with the same one without them."""
    result = estimate(json.loads(asked), limits=False)  # which follow from the rest
    numbers = (
        dict(result.quantities), [(rank.name, rank.bytes) for rank in result.ranks],
        [(phase.name, phase.bytes) for phase in result.phases],
    )  # fmt: skip
    return numbers, tuple(result.notes)


def test_every_key_has_a_case() -> None:
    assert set(CASES) | set(ELSEWHERE) == set(KINDS[TrainSettings])


@pytest.mark.parametrize("key", CASES)
def test_a_key_changes_the_answer_of_who_has_it(key: str) -> None:
    value, context, model = CASES[key]
    framework = "megatron" if MEGATRON in ownership_of(TrainSettings)[key].owners else "transformers"
    given = scenario(framework, model, {**context, key: value})
    assert told(given) != told(scenario(framework, model, context))


def absent(owner: Owner) -> tuple[str, str]:
    """The framework and method of a table in which an owner is not there."""
    return "transformers", "full" if owner is LORA else "lora"


OWNED = [(key, owner) for key, whose in ownership_of(TrainSettings).items() for owner in whose.owners if key in CASES]


@pytest.mark.parametrize(("key", "owner"), OWNED, ids=[key for key, _ in OWNED])
def test_a_key_whose_owner_is_not_there_is_refused_or_noted(key: str, owner: Owner) -> None:
    framework, method = absent(owner)
    asked = scenario(framework, DENSE, {"method": method, key: CASES[key][0]})
    if owner.refuses:
        with pytest.raises(ScenarioError) as problem:
            Scenario.from_dict(asked)
        assert problem.value.path == f"train.{key}"
        assert owner.needs in str(problem.value)
    else:
        notes = Scenario.from_dict(asked).notes
        assert any(note.startswith(f"{key} changed nothing here: it needs {owner.needs}") for note in notes)
        assert told(asked) == told(scenario(framework, DENSE, {"method": method}))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_keys_of_another_framework_are_refused(framework: str) -> None:
    for key, owner in OWNED:
        if owner.is_program and not owner.is_there(framework):
            with pytest.raises(ScenarioError, match=f"belongs to the framework {owner.needs}; the framework is"):
                Scenario.from_dict(scenario(framework, DENSE, {key: CASES[key][0]}))


@pytest.mark.parametrize("method", METHODS)
def test_keys_of_adapters_need_a_method_that_has_them(method: str) -> None:
    for key in ("lora_rank", "lora_targets", "lora_dropout", "lora_dtype", "dora"):
        asked = scenario("transformers", DENSE, {"method": method, "trainable": ["layers"], key: CASES[key][0]})
        if LORA.is_there(method):
            assert not [note for note in Scenario.from_dict(asked).notes if key in note]
        else:
            with pytest.raises(ScenarioError, match=f"needs method lora or qlora; it is {method}"):
                Scenario.from_dict(asked)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_key_is_taken_by_every_framework_that_has_it(framework: str) -> None:
    """No key that is everybody's, or whose owner is there, is refused or noted as another's."""
    for key, (value, context, model) in CASES.items():
        if any(owner.is_program and not owner.is_there(framework) for owner in ownership_of(TrainSettings)[key].owners):
            continue
        read = Scenario.from_dict(scenario(framework, model, {**context, key: value}))
        assert not [note for note in read.notes if note.startswith(f"{key} changed nothing")], key


# what a framework does either way, or has no part for; all else is noted or changes the answer
UNMOVED = {
    ("sub_group_size", "megatron"): "its optimizer is not DeepSpeed's",
    ("offload_optimizer_buffer_count", "megatron"): "its optimizer is not DeepSpeed's",
    ("sequence_parallel", "torchtitan"): "tensor parallelism always splits the sequence there",
}
DIFFER = (
    "sample_lengths", "packing", "padding", "document_mask", "padding_free", "attention", "loss", "kernels",
    "loss_upcast", "fp8_operands", "fsdp_units", "context_parallel_kind",
    "expandable_segments", "gradient_accumulation_steps", "sub_group_size", "offload_optimizer_buffer_count",
    "sequence_parallel",
)  # fmt: skip
"""Keys that not every framework follows."""


PAIRS = [(key, framework) for key in DIFFER for framework in FRAMEWORKS]


@pytest.mark.parametrize(("key", "framework"), [pair for pair in PAIRS if has_turn(" ".join(pair), 2)])
def test_what_a_framework_does_not_follow_is_said(key: str, framework: str) -> None:
    value, context, model = CASES[key]
    asked = scenario(framework, model, {**context, key: value})
    is_moved = told(asked) != told(scenario(framework, model, context))
    said = any(note.startswith(key) and "changed nothing here" in note for note in notes_of(asked))
    assert (is_moved or said) == ((key, framework) not in UNMOVED)
