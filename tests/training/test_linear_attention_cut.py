"""Layers of linear attention on one tensor-parallel rank: those of a model with a rank's share of the heads."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from vramwise import estimate
from vramwise.errors import ScenarioError
from vramwise.models import describe
from vramwise.models.execution import Execution
from vramwise.models.model import Model
from vramwise.models.step import record_forward
from vramwise.training.layout.sharding import local_model

TOKENS = 130
SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 16, "vocab_size": 256, "tie_word_embeddings": False,
}  # fmt: skip
DELTA = {
    "linear_key_head_dim": 8, "linear_value_head_dim": 16, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
    "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
KIMI = {
    "linear_attn_config": {"num_heads": 8, "head_dim": 16, "short_conv_kernel_size": 4, "kda_layers": [1],
                           "full_attn_layers": [2]},
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "kv_lora_rank": 16, "num_experts": None,
    "first_k_dense_replace": 2,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3_next": {**SIZES, **DELTA, "num_experts": 0, "mlp_only_layers": [0, 1]},
    "qwen3_5_text": {**SIZES, **DELTA},
    "olmo_hybrid": {**SIZES, **DELTA, "linear_num_key_heads": 8, "linear_num_value_heads": 8},
    "kimi_linear": {**SIZES, **KIMI},
}


def halved(config: dict[str, Any]) -> dict[str, Any]:
    """The same model with half of everything that tensor parallelism cuts."""
    counted = ("heads", "intermediate_size")
    made = {key: value // 2 if key.endswith(counted) else value for key, value in config.items()}
    if "linear_attn_config" in config:
        made["linear_attn_config"] = {**config["linear_attn_config"], "num_heads": 4}
    return made


def kept(model: Model) -> Counter[tuple[str, str, str]]:
    """What the first layer, of linear attention, keeps: module, role and bytes."""
    forward = record_forward(model, Execution(), batch=2, sequence=TOKENS)
    run = next(run for run in forward.runs if run.layer is not None)
    found: dict[object, tuple[str, str, str]] = {}
    for node in run.nodes:
        for storage, role in node.saved:
            found.setdefault(storage, (node.module, f"{node.op}.{role}", str(storage.nbytes)))
    return Counter(found.values())


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_rank_runs_a_model_of_its_share_of_the_heads(kind: str) -> None:
    config = {"model_type": kind, **CONFIGS[kind]}
    cut, half = local_model(describe(config), 2, 1), describe(halved(config))
    assert kept(cut) == kept(half)
    layer = "layers.0.linear_attn" if kind != "kimi_linear" else "layers.0.self_attn"
    shapes, expected = (
        {p.name: p.shape for p in model.parameters if layer in p.name} for model in (cut, half)
    )  # fmt: skip
    assert shapes == expected


@pytest.mark.parametrize("model", ["Qwen/Qwen3.5-27B", "Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3-Next-80B-A3B-Instruct"])
def test_training_cut_over_two_gpus_is_answered(model: str) -> None:
    train = {"framework": "megatron", "method": "lora", "sequence_length": 4096, "sequence_parallel": True}
    one, two = (
        estimate(model, task="train", num_gpus=ranks, train={**train, "tensor_parallel_size": ranks})
        for ranks in (1, 2)
    )
    assert 0.45 < two.quantities["peak_allocated"].expected / one.quantities["peak_allocated"].expected < 0.6


def test_heads_that_do_not_divide_are_refused() -> None:
    """Megatron core 0.16.1 transformer_config.py asks for it of both kinds of heads."""
    heads = {"linear_num_key_heads": 3, "linear_num_value_heads": 6, "linear_key_head_dim": 8}
    config = {"model_type": "qwen3_5_text", **CONFIGS["qwen3_5_text"], **heads}
    with pytest.raises(ScenarioError, match="tensor_parallel_size: 2 does not divide the 3 key heads of"):
        local_model(describe(config), 2, 1)


def test_heads_of_the_text_inside_a_model_of_images_are_looked_at() -> None:
    with pytest.raises(ScenarioError, match="24 attention heads and 4 key/value heads; expected 1, 2, 4"):
        estimate("Qwen/Qwen3.5-27B", task="train", num_gpus=16, train={"tensor_parallel_size": 16})


def test_ranks_that_share_a_head_of_keys_gather_what_all_made() -> None:
    """Eight ranks, four heads of keys: half a head's weights each, then all of queries, gates, keys and values."""
    config = {"model_type": "qwen3_5_text", **CONFIGS["qwen3_5_text"]}
    sizes = {"linear_num_key_heads": 8, "layer_types": ["full_attention"] * 2, "num_key_value_heads": 4}
    model = local_model(describe({**config, **sizes}), 8, 1)
    run = next(run for run in record_forward(model, Execution(), batch=1, sequence=TOKENS).runs if run.layer == 0)
    gather = next(node for node in run.nodes if node.op == "all_gather")
    assert [tensor.shape[-1] for tensor in gather.inputs] == [2 * 16, 8, 8]
    assert gather.outputs[0].shape[-1] == 16 * (2 * 8 + 2 * 4)
    attended = next(node for node in run.nodes if node.primitive.is_attention)
    assert [tensor.shape[1] for tensor in attended.inputs[:3]] == [1, 1, 1]
    assert next(p for p in model.parameters if p.name.endswith("0.self_attn.k_proj.weight")).shape == (8, 64)


def test_megatron_shares_heads_of_keys_since_core_0_16() -> None:
    asked = {"framework": "megatron", "tensor_parallel_size": 8, "sequence_length": 4096, "method": "lora"}
    estimate("Qwen/Qwen3.5-27B", task="train", num_gpus=8, train=asked)
    with pytest.raises(ScenarioError, match="8 does not divide 24 attention heads and 4 key/value heads"):
        estimate("Qwen/Qwen3.5-27B", task="train", num_gpus=8, train={**asked, "framework_version": "megatron 0.15"})
    with pytest.raises(ScenarioError, match="expected 1, 2, 4"):
        estimate("Qwen/Qwen3.5-27B", task="train", num_gpus=8, train={**asked, "framework": "torchtitan"})
