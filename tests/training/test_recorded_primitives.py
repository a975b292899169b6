"""The table of primitives is of what models and training steps record: every row, everything that it may keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from described_types import small_model

from vramwise.errors import UnsupportedModelError, VramwiseError
from vramwise.models import describe, supported_types
from vramwise.models.autograd.primitives import PRIMITIVES
from vramwise.models.execution import Execution, Images, Lora
from vramwise.models.model import Model
from vramwise.models.step import Forward, record_forward
from vramwise.scenario import Scenario, TrainSettings
from vramwise.training.activations.sizes import step_shape
from vramwise.training.answer import job_of
from vramwise.training.recipe.images import images_of

SMALL = {
    "hidden_size": 64, "intermediate_size": 224, "num_hidden_layers": 2, "num_attention_heads": 8,
    "vocab_size": 512,
}  # fmt: skip
LLAMA = {"model_type": "llama", "num_key_value_heads": 4, **SMALL}
MIXTRAL = {"model_type": "mixtral", "num_key_value_heads": 8, "num_local_experts": 4, **SMALL}
MAMBA = {"model_type": "mamba2", "hidden_size": 64, "num_heads": 8, "head_dim": 16, "num_hidden_layers": 2}
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 512}

TRAINING: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    (LLAMA, {"framework": "litgpt"}),
    (LLAMA, {"framework": "litgpt", "method": "lora", "lora_targets": ["q_proj"]}),
    (LLAMA, {"framework": "litgpt", "loss": "chunked"}),
    (LLAMA, {"framework": "torchtune", "loss": "chunked"}),
    (LLAMA, {"framework": "torchtune", "loss": "chunked", "compile": True}),
    (LLAMA, {"framework": "torchtune", "loss": "fused-linear", "kernels": ["liger"]}),
    (LLAMA, {"framework": "transformers", "loss": "chunked"}),
    (LLAMA, {"framework": "transformers", "loss": "fused", "kernels": ["liger"]}),
    (
        LLAMA,
        {
            "framework": "transformers",
            "framework_version": "liger-kernel 0.8.2",
            "loss": "fused-linear",
            "kernels": ["liger"],
        },
    ),
    *(
        (LLAMA, {"framework_version": "trl 1.5", "loss": "preference", "extra_models": ["reference"], **precision})
        for precision in ({"precision": "bf16"}, {"precision": "bf16-mixed"})
    ),
    (LLAMA, {"framework": "torchtitan", "loss": "chunked"}),
    (dict(small_model("llama4_text").config.values), {"framework": "torchtitan"}),
    (LLAMA, {"framework": "torchtitan", "loss": "vocab-parallel", "tensor_parallel_size": 2}),
    (LLAMA, {"framework": "torchtitan", "loss": "standard", "tensor_parallel_size": 2}),
    (dict(small_model("mpt").config.values), {"framework": "llm-foundry"}),
    (GPT2, {"framework": "megatron"}),
    (GPT2, {"framework": "megatron", "compile": True, "compiled": ["loss"]}),
    (GPT2, {"framework": "megatron", "attention": "eager"}),
    (MAMBA, {"framework": "megatron"}),
    (dict(small_model("qwen3_5_text").config.values), {"framework": "megatron"}),
    (
        dict(small_model("qwen3_5_text").config.values),
        {"framework_version": "transformers 5.2", "kernels": ["flash-linear-attention", "causal-conv1d"]},
    ),
    (MIXTRAL, {"framework": "megatron", "precision": "fp8"}),
    (MIXTRAL, {"framework": "megatron", "expert_parallel_size": 2}),
    (dict(small_model("deepseek_v3").config.values), {"framework": "megatron"}),
    (MIXTRAL, {"method": "qlora", "quantization": "nf4", "quantize_experts": True}),
    (LLAMA, {"framework": "axolotl", "method": "lora"}),
)
OTHERWISE: tuple[tuple[str, dict[str, Any], Execution], ...] = (
    ("afmoe", {}, Execution(lora=Lora(8, frozenset({"q_proj", "experts"}), dora=True))),
    ("afmoe", {}, Execution(expert_modules=True, quantized_compute="bf16", lora=Lora(8, frozenset({"q_proj"})))),
    ("bart", {}, Execution(device="cpu", padding=True)),
    ("clip", {}, Execution(param_dtype="fp32", autocast="bf16")),
    ("deberta-v2", {"conv_kernel_size": 3}, Execution()),
    ("llama", {"hidden_act": "mish"}, Execution()),
    ("llama", {}, Execution(lora=Lora(8, frozenset({"q_proj"})), inputs_require_grad=True)),
    ("minimax", {"block_size": 32}, Execution()),
    ("nemotron", {}, Execution(param_dtype="fp32", autocast="bf16")),
    ("olmoe", {"clip_qkv": 8.0}, Execution()),
    ("phi4_multimodal", {"vision_config": {"image_size": 42}}, Execution(images=Images(1, 3, 3, tokens=17, tiles=3))),
    ("qwen4_exp_text", {"ple_layer_ids": [1]}, Execution()),
)
"""Switches of configs and of executions that the smallest config of a type does not turn."""


def of_every_type() -> Iterator[Forward]:
    for model_type in supported_types():
        try:
            yield record_forward(small_model(model_type), Execution(), batch=2, sequence=128)
        except UnsupportedModelError:
            continue  # training of the type is not described


def with_images() -> Iterator[Forward]:
    one = TrainSettings(images_per_sequence=1, image_size="448x448")
    clipped = changed("gemma4", {"vision_config": {"use_clipped_linears": True}})
    for model in (clipped, *map(small_model, supported_types())):
        for device in ("cuda", "cpu"):
            try:
                images = images_of(one, model)
                yield record_forward(model, Execution(device=device, images=images), batch=2, sequence=4096)
            except VramwiseError:
                break  # a model that reads none, or whose tower is not described


def otherwise() -> Iterator[Forward]:
    for model_type, config, execution in OTHERWISE:
        yield record_forward(changed(model_type, config), execution, batch=2, sequence=128)


def changed(model_type: str, config: dict[str, Any]) -> Model:
    return describe({**small_model(model_type).config.values, **config})


def of_training() -> Iterator[Forward]:
    for config, train in TRAINING:
        settings = {"precision": "bf16", "sequence_length": 128, **train}
        scenario = Scenario.from_dict({"model": "x", "task": "train", "num_gpus": 2, "train": settings})
        job = job_of(scenario, describe(config), None)
        yield step_shape(job.model, job.structure, 2, 128, accumulating=False).recorded


def recorded() -> set[tuple[str, str]]:
    """Every operation with every role of what one of it kept."""
    found: set[tuple[str, str]] = set()
    for forwards in (of_every_type(), with_images(), otherwise(), of_training()):
        for forward in forwards:
            nodes = [node for run in forward.runs for node in run.nodes]
            found |= {(node.op, "") for node in nodes}
            found |= {(node.op, role) for node in nodes for _, role in node.saved}
    return found


OF_PIPELINES = {"native_group_norm"}  # what runs without gradients: tests/models/test_diffusers_components.py


def test_every_row_is_of_something_that_is_recorded() -> None:
    rows = {name: row for name, row in PRIMITIVES.items() if name not in OF_PIPELINES}
    described = {(name, role) for name, row in rows.items() for role in ("", *row.saves)}
    assert sorted(described - recorded()) == []
